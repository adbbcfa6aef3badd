#pragma once

// The three standard files are open. Where a process was started without one, the next file that it
// opens gets the number: log lines would go into a socket, or a crash's last words into memory that
// other processes read. Output into a file is appended to it.
// Thread: main, before anything is opened.

namespace tandem {

void OpenStandardFiles();  // those that are closed, as /dev/null

}  // namespace tandem
