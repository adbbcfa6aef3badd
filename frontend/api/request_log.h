#pragma once

// Lines of the log about what requests ask for and get, for operators who ask for them
// (--enable-log-requests, --enable-log-outputs). At INFO never a prompt, and outputs only with the
// second flag; both are cut to --max-log-len. Thread: any.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "common/ids.h"

namespace tandem {

namespace wire {
struct EngineCoreRequest;
}
class Tokenizer;

struct RequestLogOptions {
  bool requests = false;
  bool outputs = false;
  std::optional<int64_t> max_len;  // characters, or token ids; absent: all
};

// "request received id=cmpl-… prompt_tokens=7 max_tokens=16 temperature=0.8 …"; at DEBUG another
// line with the prompt's text and token ids. Nothing unless options.requests.
void LogReceived(const RequestLogOptions& options, const wire::EngineCoreRequest& request,
                 const Tokenizer& tokenizer);

// "request output id=cmpl-… reason=stop text=\"…\"", the text of all tokens as generated: reasoning
// and calls too; at DEBUG also the token ids.
// REQUIRES: options.outputs.
void LogOutput(const RequestLogOptions& options, std::string_view id, std::string_view reason,
               std::span<const TokenId> token_ids, const Tokenizer& tokenizer);

// For tests: `text` in quotes with JSON's escapes, cut to max_len characters (not bytes).
std::string ShownText(std::string_view text, std::optional<int64_t> max_len);

}  // namespace tandem
