#include "engine_core/executor/adapter_places.h"

#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

class RecordedTable final : public PairTable {
 public:
  explicit RecordedTable(std::vector<int64_t>* loads) : loads_(loads) {}
  void Load(int64_t place, std::span<const PackedPair* const> pairs) override {
    CHECK(pairs.size() == 2);
    loads_->push_back(place);
  }

 private:
  std::vector<int64_t>* loads_;
};

SharedAdapter MakeAdapter() {
  std::vector<std::unique_ptr<PackedPair>> pairs(2);
  return std::make_shared<const AdapterWeights>(std::move(pairs));
}

class Places {
 public:
  explicit Places(int32_t max_in_step) {
    sites_.Add({});
    sites_.Add({});
    places_.emplace(std::make_unique<RecordedTable>(&loads_),
                    AdapterLimits{.sites = &sites_, .max_rank = 8, .max_in_step = max_in_step});
  }

  // A step with a request for each of these and one without an adapter: where they are.
  std::vector<int32_t> Step(const std::vector<SharedAdapter>& adapters) {
    StepLayout layout;
    layout.adapters = adapters;
    for (size_t i = 0; i < adapters.size(); ++i) {
      layout.adapter_of_request.push_back(static_cast<int32_t>(i));
    }
    layout.adapter_of_request.push_back(-1);
    places_->Place(&layout);
    CHECK(layout.adapter_of_request.back() == -1);
    layout.adapter_of_request.pop_back();
    return layout.adapter_of_request;
  }
  const std::vector<int64_t>& loads() const { return loads_; }

 private:
  std::vector<int64_t> loads_;
  AdapterSites sites_;
  std::optional<AdapterPlaces> places_;
};

using Numbers = std::vector<int32_t>;

TEST_CASE("adapter places: an adapter is copied once, and stays while there is room") {
  Places places(3);
  const SharedAdapter a = MakeAdapter(), b = MakeAdapter(), c = MakeAdapter();
  CHECK(places.Step({a}) == Numbers{0});
  CHECK(places.Step({b, a}) == Numbers{1, 0});
  CHECK(places.Step({c, b}) == Numbers{2, 1});
  CHECK(places.Step({a, b, c}) == Numbers{0, 1, 2});
  CHECK(places.loads() == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("adapter places: the one that was used longest ago makes room, never one of the step") {
  Places places(2);
  const SharedAdapter a = MakeAdapter(), b = MakeAdapter(), c = MakeAdapter();
  CHECK(places.Step({a, b}) == Numbers{0, 1});
  CHECK(places.Step({b}) == Numbers{1});
  CHECK(places.Step({c}) == Numbers{0});
  // b was used before c, but runs in this step.
  CHECK(places.Step({a, b}) == Numbers{0, 1});
  CHECK(places.Step({c, a}) == Numbers{1, 0});
  CHECK(places.loads() == std::vector<int64_t>{0, 1, 0, 0, 1});
}

TEST_CASE("adapter places: one that was dropped leaves its place, and no other is taken for it") {
  Places places(2);
  const SharedAdapter a = MakeAdapter();
  SharedAdapter b = MakeAdapter();
  places.Step({a});
  places.Step({b});
  for (int i = 0; i < 20; ++i) {
    b.reset();
    b = MakeAdapter();  // often at the address of the one before
    CHECK(places.Step({b}) == Numbers{1});
  }
  CHECK(places.loads().size() == 22);
  CHECK(places.Step({a}) == Numbers{0});
}

}  // namespace
}  // namespace tandem
