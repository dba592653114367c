#!/bin/sh
# The NEON kernels under qemu-user, where the cross compiler is installed.
exec tools/check-neon 1
