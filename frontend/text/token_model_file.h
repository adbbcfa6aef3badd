#pragma once

// Reads the `model` of tokenizer.json. Pure; any thread. Fails with InvalidArgument (malformed) or
// Unimplemented (a kind or option that is not supported), the message naming it.
// To add a kind: a function in token_model_file.cc and its row.

#include <memory>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/ids.h"
#include "common/status.h"
#include "frontend/text/token_model.h"
#include "frontend/text/vocabulary.h"

namespace tandem {

// byte_level: the vocabulary spells bytes in GPT-2's alphabet. *vocabulary gets all tokens.
StatusOr<std::unique_ptr<TokenModel>> ParseTokenModel(const nlohmann::json& spec, bool byte_level,
                                                      TokenList* vocabulary);
// Whether the model works on bytes where the pre-tokenizer is byte-level.
StatusOr<bool> ModelTakesBytes(const nlohmann::json& spec);

// InvalidArgument for anything but a number that may be an id.
StatusOr<TokenId> ToTokenId(const nlohmann::json& value, std::string_view name);

}  // namespace tandem
