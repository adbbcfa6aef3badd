// Precompiled: SentencePiece's table of replacements as `tokenizers` applies it, to grapheme
// clusters of fewer than 6 bytes and else to single characters; only the start of either needs to
// match.

#include <utf8proc.h>

#include "common/utf8.h"
#include "frontend/text/base64.h"
#include "frontend/text/charsmap.h"
#include "frontend/text/json_fields.h"
#include "frontend/text/normalizers/normalizer_step.h"

namespace tandem {
namespace {

constexpr size_t kMaxClusterBytes = 5;

class PrecompiledNormalizer : public NormalizerStep {
 public:
  explicit PrecompiledNormalizer(Charsmap map) : map_(std::move(map)) {}

  Status Apply(std::string* text) const override {
    std::string out;
    size_t cluster = 0;
    utf8proc_int32_t state = 0;
    char32_t last = 0;
    for (size_t pos = 0; pos < text->size();) {
      const size_t begin = pos;
      const char32_t c = NextUtf8(*text, &pos);
      if (begin > 0 && utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                                        static_cast<utf8proc_int32_t>(c), &state)) {
        AppendCluster(std::string_view(*text).substr(cluster, begin - cluster), &out);
        cluster = begin;
      }
      last = c;
    }
    AppendCluster(std::string_view(*text).substr(cluster), &out);
    *text = std::move(out);
    return OkStatus();
  }

 private:
  void AppendCluster(std::string_view cluster, std::string* out) const {
    if (cluster.size() <= kMaxClusterBytes) {
      if (const auto match = map_.Shortest(cluster)) {
        out->append(match->replacement);
        return;
      }
    }
    for (size_t pos = 0; pos < cluster.size();) {
      const size_t begin = pos;
      NextUtf8(cluster, &pos);
      const std::string_view character = cluster.substr(begin, pos - begin);
      const auto match = map_.Shortest(character);
      out->append(match ? match->replacement : character);
    }
  }

  const Charsmap map_;
};

}  // namespace

NewNormalizerStep NewPrecompiledNormalizer(const nlohmann::json& spec) {
  ASSIGN_OR_RETURN(const std::string encoded, StringField(spec, "precompiled_charsmap", ""));
  const auto bytes = Base64Decode(encoded);
  if (!bytes) return InvalidArgumentError("precompiled_charsmap is not base64");
  ASSIGN_OR_RETURN(Charsmap map, Charsmap::Create(*bytes));
  return std::unique_ptr<NormalizerStep>(std::make_unique<PrecompiledNormalizer>(std::move(map)));
}

}  // namespace tandem
