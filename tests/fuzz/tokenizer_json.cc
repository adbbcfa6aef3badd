// tokenizer.json, and tokenizer_config.json after a NUL: refused with a message, or a tokenizer
// whose texts are UTF-8.

#include <string>

#include "common/check.h"
#include "common/strings.h"
#include "frontend/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  FuzzInput input(data, size);
  const std::string_view file = input.Until('\0');
  const auto tokenizer = Tokenizer::Parse(file, input.Rest());
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  for (const std::string_view text : {"Hi <|im_start|>12 don't \xC3\xA9\n\n x",
                                      "a \xF0\x9F\x98\x80\xE2\x96\x81\xEF\xBD\xB1 ab"}) {
    const auto ids = (*tokenizer)->Encode(text, true);
    if (!ids.ok()) continue;
    for (const TokenId id : *ids) {
      CHECK(id >= 0 && id < (*tokenizer)->vocab_size()) << id;
      (*tokenizer)->TokenBytes(id);
    }
    const std::string decoded = (*tokenizer)->Decode(*ids, false);
    CHECK(FindInvalidUtf8(decoded) == std::string::npos);
  }
  return 0;
}
