"""What providers share: the Provider protocol, driver bases, names, offers, prices, kubeconfigs."""
