#pragma once

// What became of finished spans, for the metrics.

namespace tandem {

// Counts from 0. kQueueFull: not taken; kRefused: the collector does not want them; kUndelivered:
// no collector took them in time.
enum class SpanOutcome { kExported, kQueueFull, kRefused, kUndelivered };

}  // namespace tandem
