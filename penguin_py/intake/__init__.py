"""Files on their way in: footers read and held against the contract, owners told."""
