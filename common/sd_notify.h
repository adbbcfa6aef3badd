#pragma once

// Reports the service's state to systemd (Type=notify), without libsystemd: one datagram to the
// socket named by NOTIFY_SOCKET. Does nothing when the variable is unset. Thread: any. None of them
// waits: the socket has room for few datagrams (net.unix.max_dgram_qlen, 10 by default).
// Lines as sd_notify(3) names them: "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1".

#include <optional>
#include <string_view>

#include "common/status.h"

namespace tandem {

// What finds no room is sent by a thread, in order, as soon as there is some; exit waits ten
// seconds for it at most. OkStatus then, too.
Status SdNotify(std::string_view lines);
// "STATUS=…" of a process that is about to fail: what systemd and the commands that asked for the
// process show.
void NotifyFailure(std::string_view why);

// For the next part of a long start: it may take as long again as a whole one by the units' own
// TimeoutStartSec.
inline constexpr std::string_view kMoreStartTime = "EXTEND_TIMEOUT_USEC=900000000";
void AskForStartTime();  // not sent where there is no room

// Ours, for `tandem serve`: another process serves in place of the sender, which ends by itself.
inline constexpr std::string_view kLeavingNotice = "X_TANDEM_LEAVING=1";

// Likewise: the sender is to be replaced by a new process that takes over from it. For a process
// whose parent's id is in this variable.
inline constexpr std::string_view kReloadNotice = "X_TANDEM_RELOAD=1";
inline constexpr const char* kSupervisorVariable = "TANDEM_SUPERVISOR_PID";

// WATCHDOG_USEC: how long this process may give no sign of life; nullopt: nobody watches it.
std::optional<double> WatchdogSeconds();
// Such a sign. A watcher that has no room for it misses one of several.
void SendBeat();

}  // namespace tandem
