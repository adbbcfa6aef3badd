#pragma once

// What became of the grammar that a request waits for. A value, handled on the engine loop.

#include <cstdint>

#include "common/ids.h"
#include "common/status.h"

namespace tandem {

struct GrammarResult {
  RequestId request_id;
  int64_t request_order = 0;  // Request::order: the id may name another request by now
  Status status;              // not OK: the request ends with this error
};

}  // namespace tandem
