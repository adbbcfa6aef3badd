#include "frontend/parsers/arguments_writer.h"

#include "common/strings.h"

namespace tandem {

Parse<int> CopyValue(TextSource& text, std::string name, bool is_text, Markers ends,
                     ArgumentsWriter* out, bool strips) {
  if (strips) co_await text.SkipBlanks();
  if (!is_text) {
    const TextUntil value = co_await TakeUntil(text, std::move(ends));
    if (value.marker != kNoMarker) {
      out->BeginParameter(name);
      out->AddValue(name, strips ? StripAscii(value.text) : value.text);
    }
    co_return value.marker;
  }
  out->BeginParameter(name);
  out->AddQuote();
  HeldBlanks held;
  const TextFunction add = [out](std::string_view part) { out->AddText(part); };
  const int marker = co_await CopyUntil(text, std::move(ends), [&](std::string_view part) {
    strips ? held.Pass(part, add) : add(part);
  });
  if (marker != kNoMarker) out->AddQuote();
  co_return marker;
}

}  // namespace tandem
