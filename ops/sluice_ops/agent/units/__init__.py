"""Starting and stopping what the controller has assigned to a host. Start with `reconcile`, which is pure."""
