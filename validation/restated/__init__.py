"""Each family read again from the data fields of its instance, by code that no model uses: columns, units, prices."""
