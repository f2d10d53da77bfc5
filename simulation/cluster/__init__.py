"""Jobs of tasks on the slots of a cluster, their data on its disks and links."""
