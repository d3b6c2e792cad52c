#!/bin/sh
# Makes a program use the modules of this clone, until there is a release. Run it in the folder of the
# program's go.mod:
#
#	sh ../hybridlimit/deploy/replace.sh
set -eu
clone=$(dirname "$(dirname "$0")")
case $clone in
/* | ./* | ../* | ..) ;;
*) clone=./$clone ;;
esac
if [ ! -f go.mod ] || [ ! -d "$clone/hybridtest" ] || [ "$(cd "$clone" && pwd -P)" = "$(pwd -P)" ]; then
	echo "replace.sh: run it as sh CLONE/deploy/replace.sh in the folder of your go.mod" >&2
	exit 1
fi
for module in "" /adapter/grpclimit /adapter/otellimit /adapter/promlimit /adapter/rules /compat/xrate; do
	go mod edit -replace "github.com/hybridlimit/hybridlimit$module=$clone$module"
done
