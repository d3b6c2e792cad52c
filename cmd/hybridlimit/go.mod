module github.com/hybridlimit/hybridlimit/cmd/hybridlimit

go 1.25.0

// Until the first release, which is to require the versions of these that it goes with.
replace (
	github.com/hybridlimit/hybridlimit => ../../
	github.com/hybridlimit/hybridlimit/adapter/rules => ../../adapter/rules
)

require github.com/alecthomas/kong v1.17.0
