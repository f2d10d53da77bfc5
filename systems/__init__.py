"""What runs around the models. The core works without this folder; each system registers its commands and importers."""
