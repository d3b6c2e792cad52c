module github.com/hybridlimit/hybridlimit/adapter/grpclimit

go 1.25.0

replace github.com/hybridlimit/hybridlimit => ../../

require (
	github.com/hybridlimit/hybridlimit v0.0.0-00010101000000-000000000000
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260706201446-f0a921348800
	// The newest that does not need Go 1.26.
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.11
)

require (
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)
