#pragma once

// Embeddings among the parts of a chat: {"type": "prompt_embeds", "data": a file of torch.save in
// base64}. A chat template knows texts only, so it gets a mark in place of each part, and what it
// renders is cut at the marks. A mark has a random number of the request in it, so that no text of
// a client is one.
// Pure; any thread.

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace tandem {

struct EmbeddedParts {
  std::string number;
  std::vector<std::string> base64;  // in the order of the messages
  bool empty() const { return base64.empty(); }
};

// Takes the parts out of checked messages, and puts texts with their marks there.
EmbeddedParts TakeEmbeddedParts(nlohmann::ordered_json* messages);
bool HasEmbeddedParts(const nlohmann::ordered_json& messages);

// texts[i] is followed by the part parts[i]; the last text by none.
struct TextAndParts {
  std::vector<std::string_view> texts;
  std::vector<size_t> parts;
};
// A template may show a part more than once. Failure: it left one out, or changed its mark.
StatusOr<TextAndParts> CutAtMarks(std::string_view rendered, const EmbeddedParts& parts);

}  // namespace tandem
