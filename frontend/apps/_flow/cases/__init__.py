"""Cases that come with the app `cns`, one a file; docs/cns.md tells how to write one."""
