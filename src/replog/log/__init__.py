"""One copy of one partition: stored in files, or in memory. Everything that touches the operating system goes through `files.Fs`."""
