#include "engine_core/weights/nested_weights.h"

#include <string>
#include <utility>

namespace tandem {
namespace {

constexpr std::string_view kModel = "model.", kHead = "lm_head";

// What names that begin with `own` begin with instead, and names that begin with kHead.
struct Prefixes {
  std::string_view model, head, own = kModel;
};
constexpr Prefixes kKnown[] = {
    {"language_model.model.", "language_model.lm_head"},
    {"model.language_model.", kHead},
    {"", kHead},
};

// Checkpoints of classes without text_config that lack the class's first prefix, by their table of
// embeddings: OPT's, and Bloom's as they are published.
struct Unprefixed {
  std::string_view table;
  Prefixes prefixes;
};
constexpr Unprefixed kUnprefixed[] = {
    {"decoder.embed_tokens.weight", {"decoder.", kHead, "model.decoder."}},
    {"word_embeddings.weight", {"", kHead, "transformer."}},
};

bool IsOfTower(std::string_view name) {
  return name.starts_with("model.visual.") || name.starts_with("model.vision_tower.") ||
         name.starts_with("model.multi_modal_projector.");
}

class NestedWeights final : public Weights {
 public:
  NestedWeights(std::unique_ptr<Weights> whole, const Prefixes& prefixes)
      : whole_(std::move(whole)), prefixes_(prefixes) {}

  StatusOr<WeightTensor> Get(std::string_view name, int64_t rows, int64_t columns) override {
    return whole_->Get(NameOf(name), rows, columns);
  }
  StatusOr<WeightTensor> GetFromStack(std::string_view name, int64_t index, int64_t count,
                                      int64_t rows, int64_t columns) override {
    return whole_->GetFromStack(NameOf(name), index, count, rows, columns);
  }
  StatusOr<StoredTensor> GetStored(std::string_view name) override {
    return whole_->GetStored(NameOf(name));
  }
  bool Has(std::string_view name) const override { return whole_->Has(NameOf(name)); }
  std::string PlaceOf(std::string_view name) const override {
    return whole_->PlaceOf(NameOf(name));
  }

  // The text model's alone, by the names that its readers use.
  std::vector<std::string> Unread() const override {
    std::vector<std::string> names;
    for (const std::string& name : whole_->Unread()) {
      if (name.starts_with(prefixes_.head)) {
        names.push_back(std::string(kHead) + name.substr(prefixes_.head.size()));
      } else if (name.starts_with(prefixes_.model)) {
        names.push_back(std::string(prefixes_.own) + name.substr(prefixes_.model.size()));
      }
    }
    return names;
  }

 private:
  std::string NameOf(std::string_view name) const {
    if (IsOfTower(name)) return std::string(name);
    for (const auto& [own, stored] :
         {std::pair{prefixes_.own, prefixes_.model}, std::pair{kHead, prefixes_.head}}) {
      if (name.starts_with(own)) return std::string(stored) + std::string(name.substr(own.size()));
    }
    return std::string(name);
  }

  std::unique_ptr<Weights> whole_;
  Prefixes prefixes_;
};

}  // namespace

std::unique_ptr<Weights> TextWeights(std::unique_ptr<Weights> weights) {
  if (weights->Has("model.embed_tokens.weight")) return weights;
  for (const Prefixes& prefixes : kKnown) {
    if (weights->Has(std::string(prefixes.model) + "embed_tokens.weight")) {
      return std::make_unique<NestedWeights>(std::move(weights), prefixes);
    }
  }
  for (const auto& [table, prefixes] : kUnprefixed) {
    if (weights->Has(table)) return std::make_unique<NestedWeights>(std::move(weights), prefixes);
  }
  return weights;
}

std::string TextName(std::string_view name) {
  for (const auto& [model, head, own] : kKnown) {
    if (name.starts_with(head)) return std::string(kHead) + std::string(name.substr(head.size()));
    if (!model.empty() && name.starts_with(model)) {
      return std::string(own) + std::string(name.substr(model.size()));
    }
  }
  return std::string(name.starts_with(kModel) ? "" : kModel) + std::string(name);
}

}  // namespace tandem
