#pragma once

// The thread that writes a server's log (log_writer.h). Without it each thread writes its own lines
// and waits for their reader, which is right for commands.

namespace tandem {

// From now on no thread waits for a reader. Once, in main, after InitLog and before other threads.
void StartLogThread();

// Waits until the lines before this are written, a second at most; exit does so by itself. Any
// thread; also from a signal handler.
void FlushLog();

[[noreturn]] void ExitAfterLog(int exit_status);  // _exit, with FlushLog before

}  // namespace tandem
