# Archive and install rules.
