#pragma once

// Memory and CPU time of the engines' processes in /metrics. A scrape waits for no engine: it
// requests the numbers that the next one shows, at most once a second. Only engines that are
// Tandem's reply. Thread: the shard's.

#include "frontend/api/context.h"

namespace tandem {

void AskEngineProcesses(ApiContext* context);

}  // namespace tandem
