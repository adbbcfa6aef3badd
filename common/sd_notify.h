#pragma once

// Reports the service's state to systemd (Type=notify), without libsystemd: one datagram to the
// socket named by NOTIFY_SOCKET. Does nothing when the variable is unset. Thread: any.
// Lines as sd_notify(3) names them: "READY=1", "STATUS=...", "STOPPING=1", "WATCHDOG=1".

#include <optional>
#include <string_view>

#include "common/status.h"

namespace tandem {

Status SdNotify(std::string_view lines);

// Ours, for `tandem serve`: another process serves in place of the sender, which ends by itself.
inline constexpr std::string_view kLeavingNotice = "X_TANDEM_LEAVING=1";

// WATCHDOG_USEC: how long this process may give no sign of life; nullopt: nobody watches it.
std::optional<double> WatchdogSeconds();
// Such a sign. Never waits: a watcher that does not read now misses one of several.
void SendBeat();

}  // namespace tandem
