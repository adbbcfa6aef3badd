#pragma once

// The rows of what is supported, by the names that a file gives. Pure; any thread.

#include <span>
#include <string>
#include <string_view>

#include "common/status.h"
#include "common/utf8.h"

namespace tandem {

// The row with this name. UNIMPLEMENTED with the key, the name that it has, and those of all rows.
template <class Row>
StatusOr<const Row*> FindKnownName(std::span<const Row> rows, std::string_view key,
                                   std::string_view name) {
  std::string known;
  for (const Row& row : rows) {
    if (row.name == name) return &row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  std::string shown;
  AppendLossyUtf8(name, &shown);
  return UnimplementedError(std::string(key) + " \"" + shown +
                            "\" is not supported; supported: " + known);
}

}  // namespace tandem
