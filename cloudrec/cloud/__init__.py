"""What the providers of clouds share: how drivers, names, prices, offers and kubeconfigs are made."""
