#pragma once

// The page of `tandem top` as lines of text. Pure. What a server sends is shown as text: control
// characters, of which terminals make commands, become "?".

#include <string>
#include <string_view>
#include <vector>

#include "deploy/cli/top/history.h"
#include "deploy/cli/top/server_state.h"

namespace tandem {

struct ScreenLine {
  enum class Style { kPlain, kTitle, kHeading, kProblem };
  std::string text;
  Style style = Style::kPlain;
};

// `problem`: why the last look failed, or "". A server that was never reached has no state.
std::vector<ScreenLine> DrawScreen(std::string_view url, const DashboardState* state,
                                   const History& history, std::string_view problem);

// The first `width` characters, without control characters and broken UTF-8.
std::string FitLine(std::string_view text, size_t width);

// "12 ms", "3.4 s", "2 min"
std::string SecondsText(double seconds);
// "950", "12.3k", "4.5M"
std::string CountText(double count);

}  // namespace tandem
