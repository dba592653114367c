#!/bin/sh
# The digests of builds at -O0 and -O3 and for aarch64. $1: the program, in the folder of the build.
exec tools/check-digest "$(dirname "$1")"
