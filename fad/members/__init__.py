"""The members of Tensor by subject, a table in each module; `fad.methods` installs them."""
