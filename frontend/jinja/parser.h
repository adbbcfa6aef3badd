#pragma once

// Jinja source to its tree. Pure; any thread. The tree owns all it needs; source may go away.
// Fails with InvalidArgument "line N: ..." for a syntax error, or for nesting deeper than
// kMaxTreeDepth: code that walks a tree may recurse.

#include <memory>
#include <string_view>

#include "common/status.h"
#include "frontend/jinja/ast.h"

namespace tandem::jinja {

constexpr int kMaxTreeDepth = 200;

StatusOr<std::unique_ptr<const Template>> Parse(std::string_view source);

}  // namespace tandem::jinja
