#pragma once

// Names that vLLM has retired and that only --show-hidden-metrics-for-version brings back. A series
// is first DEPRECATED in its HELP, is hidden from the next minor version on, and then goes. Pure;
// any thread.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace prometheus {
struct MetricFamily;
}

namespace tandem {

// Whether a version, "0.32" or "0.32.1", is the minor version before the one whose contract is
// kept;
// "" is not. INVALID_ARGUMENT: no version.
StatusOr<bool> ShowsHiddenMetrics(const std::string& version);

// Adds the retired families, made of those that are there.
void AppendHiddenMetrics(std::vector<prometheus::MetricFamily>* families);

// The families of a page in Prometheus's text form whose HELP begins with this word, "DEPRECATED"
// or "HIDDEN", between commas.
std::string NamesWithHelp(std::string_view page, std::string_view word);
// Says in the log which names of the page will go.
void LogRetiringNames(std::string_view page);

}  // namespace tandem
