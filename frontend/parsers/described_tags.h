#pragma once

// The grammar of calls in a format that a checkpoint describes (response_template.h), where the
// description spells out what stands around a call's name and its JSON: between words, as
//   "open": "<tool_call>", "close": "</tool_call>", "transform": {"function": "{content}"}
// or around the name in the opening mark, as
//   "open_pattern": "<call:(?P<name>\\w+)>\\n?", … {"name": "{name}", "arguments": "{content}"}
// Pure; any thread.

#include <memory>
#include <string_view>

#include "frontend/parsers/response_template.h"
#include "frontend/parsers/tool_parser.h"

namespace tandem {

// The row with such a grammar, which owns what it shows; null: the description spells out none.
std::shared_ptr<const ToolParserRow> WithTagsOf(const ResponseTemplate& described,
                                                const ToolParserRow& row);

// Whether the parser reads this name out of the call that the row's grammar would have for it.
bool CanCall(const ResponseTemplate& described, const ToolParserRow& row, std::string_view name);

}  // namespace tandem
