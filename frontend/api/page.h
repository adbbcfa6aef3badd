#pragma once

// A handler that sends one text. Thread: any shard's.

#include <functional>
#include <string>
#include <string_view>

#include "frontend/http/router.h"

namespace tandem {

// make_text runs when the text is first asked for, because a start does not wait for it.
Handler SendsPage(std::string_view media_type, std::function<std::string()> make_text);

}  // namespace tandem
