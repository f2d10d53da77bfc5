"""The modelling language: labelled variables, data and rules, objectives in strict order, and the mathematics of it."""
