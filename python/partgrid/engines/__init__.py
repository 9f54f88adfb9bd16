"""Programs of many processes: each module brings grids together with one engine, which it imports only when it is used."""
