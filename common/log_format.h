#pragma once

// The form of log lines: text for people, or JSON for programs that collect logs:
//   {"asctime":"2026-11-20T13:02:11.042Z","levelname":"INFO","name":"tandem.generation","lineno":42,
//    "processName":"APIServer","process":4711,"message":"request finished","request_id":"cmpl-…",…}
// one object per line, valid UTF-8 whatever the message is: broken bytes become U+FFFD. The first
// keys are those of vLLM's JSON formatter. Thread: main, before others start.

#include <string_view>

#include "common/status.h"

namespace tandem {

// "text" or "json". Programs that this one starts, and that have no flags, inherit it.
// INVALID_ARGUMENT: another word.
Status SetLogFormat(std::string_view format);

// For a program that has no flags: the form that its parent has set.
void InheritLogFormat();

}  // namespace tandem
