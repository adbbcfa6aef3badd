#pragma once

// What lines that are written past the log need of it (last_words.cc). Any thread; also from a
// signal handler.

#include <string_view>

namespace tandem {

bool LogIsJson();
std::string_view LogProcessName();

}  // namespace tandem
