"""What all launchers share: the protocol, the run's spec, folder, ledger and results."""
