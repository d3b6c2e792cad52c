module github.com/hybridlimit/hybridlimit/adapter/rules

go 1.25.0

// Until the first release, which is to require the version of the root module that it goes with.
replace github.com/hybridlimit/hybridlimit => ../../

require (
	github.com/fsnotify/fsnotify v1.10.1
	github.com/goccy/go-yaml v1.19.2
	github.com/hybridlimit/hybridlimit v0.0.0-00010101000000-000000000000
)

require golang.org/x/sys v0.36.0 // indirect
