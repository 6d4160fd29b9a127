# What the scripts of the suites source: go then compiles for them by hand what it compiles for make (see Makefile), and finds it in
# its cache.
GOFLAGS="$(go env GOFLAGS) -trimpath"
export GOFLAGS
