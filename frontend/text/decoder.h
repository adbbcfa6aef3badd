#pragma once

// The `decoder` of tokenizer.json: turns tokens, as the vocabulary spells them, into text.
// Thread: immutable after Create; any thread.
// Create: Unimplemented names the kind we do not know; InvalidArgument for a malformed one.

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/status.h"

namespace tandem {

class TokenDecoder {
 public:
  static StatusOr<TokenDecoder> Create(const nlohmann::json& spec);

  // The text is the tokens' bytes put together, each by itself: Decode is not needed.
  bool byte_level() const { return byte_level_; }
  std::string Decode(std::vector<std::string> tokens) const;
  // What one token adds in the middle of a text, whole character or not.
  std::string TokenBytes(std::string_view token) const;

 private:
  struct Replace {
    std::string from, to;
  };
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string content;
    size_t start, stop;  // at most so many
  };
  struct Metaspace {
    std::string replacement;
    bool drops_first;  // the replacement is dropped in the first token
  };
  using Step = std::variant<Replace, ByteFallback, Fuse, Strip, Metaspace>;

  Status Add(const nlohmann::json& spec, int depth);
  static void ApplyStep(const Step& step, std::vector<std::string>* tokens);

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace tandem
