// Expected texts are those of Python 3.11's str.lower.

#include "frontend/text/characters.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("a text's lower case has the final sigma at the ends of words") {
  CHECK(LowercaseText("\u0130ÄßK") == "i\u0307äßk");
  CHECK(LowercaseText("ΟΔΟΣ ΣΑΣ.") == "οδος σας.");
  CHECK(LowercaseText("ΣΣ ΑΣ1") == "σς ας1");
  CHECK(Lowercase("ΟΔΟΣ") == "οδοσ");
  // What has no case does not end a word.
  CHECK(LowercaseText("ΑΣ'Α ΑΣ'") == "ασ'α ας'");
  CHECK(LowercaseText("Α\u0301Σ\u0301Α ΑΣ\u0301") == "α\u0301σ\u0301α ας\u0301");
  CHECK(LowercaseText("ΑΣ.Α:Σ ΑΣ-Α") == "ασ.α:ς ας-α");
  // Without a letter before it there is no end.
  CHECK(LowercaseText("Σ 1Σ 'Σ") == "σ 1σ 'σ");
  CHECK(LowercaseText("\u216BΣ \u24B6Σ ªΣ A\u02B0Σ") == "\u217Bς \u24D0ς ªς a\u02B0ς");
  CHECK(LowercaseText("").empty());
}

}  // namespace
}  // namespace tandem
