package actas

// ProbeIdentities returns why threads can't act as others here, for tests to skip.
var ProbeIdentities = probeIdentities

// NoID is the user that no thread can become.
const NoID = noID
