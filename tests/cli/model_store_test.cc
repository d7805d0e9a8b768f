// Whose models are kept, and who makes room for whom.
#include "cli/models/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/server/quotas_file.h"
#include "tests/keys_file.h"

namespace fairlead::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kKiB = 1024;

class ModelStoreTest : public testing::Test {
 protected:
  ModelStoreTest() {
    EngineConfig config;
    config.transport = "tcp";
    config.keys_file = keys_.path();
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine);
    engine_.emplace(std::move(*engine));
    store_.emplace(&*engine_, 1000 * kKiB);
  }

  std::shared_ptr<Model> model(const std::string& owner, const std::string& name, std::uint64_t bytes) {
    const FileTensor tensor{"w", "U8", {static_cast<std::int64_t>(bytes)}, 0, bytes};
    auto made = *ModelStore::lay_out(name, {ModelFile{"m.safetensors", {}, 1}}, {{tensor, {}}});
    made->owner = owner;
    EXPECT_TRUE(made->allocate(*engine_).ok());
    return made;
  }
  /// What went for it; nothing: it was refused.
  std::optional<std::vector<std::string>> keep(const std::string& owner, const std::string& name, std::uint64_t bytes) {
    Result<std::vector<std::shared_ptr<const Model>>> dropped = store_->keep(model(owner, name, bytes));
    if (!dropped) {
      EXPECT_EQ(dropped.error().code(), Code::kResourceExhausted);
      EXPECT_THAT(dropped.error().message(), HasSubstr("equal share"));
      return std::nullopt;
    }
    std::vector<std::string> names;
    for (const auto& each : *dropped) names.push_back(each->name);
    return names;
  }
  std::vector<std::string> names_of(const std::string& owner) {
    std::vector<std::string> names;
    for (const ModelSummary& each : store_->list(owner)) names.push_back(each.name);
    return names;
  }

  const std::string key_ = std::string(64, 'a') + "\n";
  const test::KeysFile keys_{"alice " + key_ + "bob " + key_ + "carol " + key_};
  std::optional<Engine> engine_;
  std::optional<ModelStore> store_;
};

TEST_F(ModelStoreTest, ANameIsItsOwners) {
  EXPECT_THAT(*keep("alice", "m", 1000), IsEmpty());
  EXPECT_THAT(*keep("bob", "m", 2000), IsEmpty());
  EXPECT_THAT(*keep("", "m", 3000), IsEmpty());
  EXPECT_EQ(store_->find("m", "alice")->bytes, 1000U);
  EXPECT_EQ(store_->find("m", "bob")->bytes, 2000U);
  EXPECT_EQ(store_->find("m")->bytes, 3000U);
  EXPECT_EQ(store_->find("m", "carol"), nullptr);
  EXPECT_THAT(names_of("carol"), IsEmpty());
  EXPECT_EQ(ModelStore::read_prefix(*store_->find("m", "alice")), "of/alice/m/");
  EXPECT_EQ(ModelStore::read_prefix(*store_->find("m")), "model/m/");
  EXPECT_THAT(*keep("alice", "m", 1500), IsEmpty()) << "it takes its own place";
  EXPECT_EQ(store_->find("m", "bob")->bytes, 2000U);
  EXPECT_EQ(store_->count(), 3U);
}

TEST_F(ModelStoreTest, WithoutOwnersTheOldestMakesRoom) {
  for (const char* name : {"a", "b", "c"}) EXPECT_THAT(*keep("", name, 300 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("", "d", 300 * kKiB), ElementsAre("a"));
  EXPECT_THAT(*keep("", "e", 600 * kKiB), ElementsAre("b", "c"));
  EXPECT_THAT(*keep("", "f", 900 * kKiB), ElementsAre("d", "e"));
}

TEST_F(ModelStoreTest, WhoHoldsNoMoreThanAnEqualShareLosesNothingToOthers) {
  EXPECT_THAT(*keep("alice", "a", 400 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("bob", "b1", 300 * kKiB), IsEmpty());
  for (int i = 2; i < 10; ++i) {
    EXPECT_THAT(*keep("bob", "b" + std::to_string(i), 300 * kKiB), ElementsAre("b" + std::to_string(i - 1)));
  }
  EXPECT_EQ(keep("bob", "large", 700 * kKiB), std::nullopt) << "it would have to be at alice's cost";
  EXPECT_THAT(names_of("alice"), ElementsAre("a"));
  EXPECT_THAT(names_of("bob"), ElementsAre("b9")) << "what is refused costs nothing";
}

TEST_F(ModelStoreTest, WhoHoldsMostMakesRoom) {
  for (const char* name : {"a1", "a2", "a3"}) EXPECT_THAT(*keep("alice", name, 300 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("bob", "b1", 200 * kKiB), ElementsAre("a1"));
  EXPECT_THAT(*keep("carol", "c1", 300 * kKiB), ElementsAre("a2"));
  EXPECT_THAT(*keep("bob", "b2", 250 * kKiB), ElementsAre("b1")) << "he would hold most";
}

TEST_F(ModelStoreTest, BeyondItsQuotaAPrincipalsOwnOldestMakeRoom) {
  store_->set_quotas(*parse_quotas("alice memory=500K models=3\n* models=1", "quotas"));
  EXPECT_THAT(*keep("bob", "b", 100 * kKiB), IsEmpty());
  for (const char* name : {"a1", "a2", "a3"}) EXPECT_THAT(*keep("alice", name, 100 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("alice", "a4", 100 * kKiB), ElementsAre("a1")) << "models";
  EXPECT_THAT(*keep("alice", "a5", 300 * kKiB), ElementsAre("a2", "a3")) << "memory";
  EXPECT_THAT(*keep("bob", "b2", 100 * kKiB), ElementsAre("b")) << "as everybody without a line";
  EXPECT_THAT(*keep("", "c1", 100 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("", "c2", 100 * kKiB), IsEmpty()) << "who has no name has no quota";
  const auto beyond = store_->keep(model("alice", "large", 500 * kKiB));
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(beyond.error().message(), HasSubstr("the quota of 'alice' is 512"));
  EXPECT_THAT(names_of("alice"), ElementsAre("a4", "a5")) << "what is refused costs nothing";
  EXPECT_EQ(store_->kept().size(), 5U);
}

TEST_F(ModelStoreTest, AQuotaBoundsWhatIsPushed) {
  store_->set_quotas(*parse_quotas("alice push=100K", "quotas"));
  ModelStore::Reservation first, second, others;
  const Status large = store_->reserve(first, 101 * kKiB, "m", "alice");
  EXPECT_EQ(large.code(), Code::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("larger than the quota of 'alice'"));
  EXPECT_TRUE(store_->reserve(first, 60 * kKiB, "m", "alice").ok());
  bool own_pushes = false;
  const Status more = store_->reserve(second, 60 * kKiB, "n", "alice", &own_pushes);
  EXPECT_TRUE(own_pushes) << "nobody else's are to give way";
  EXPECT_EQ(more.code(), Code::kUnavailable);
  EXPECT_THAT(more.message(), HasSubstr("raise its quota (--quotas)"));
  EXPECT_TRUE(store_->reserve(others, 900 * kKiB, "n", "bob").ok());
}

TEST(QuotasFile, WhatIsWrongIsSaidWithItsLine) {
  const auto error = [](std::string_view text) {
    const auto read = parse_quotas(text, "quotas");
    return read ? std::string() : read.error().message();
  };
  EXPECT_THAT(error(""), HasSubstr("quotas names no principal"));
  EXPECT_THAT(error("a\nb memory=8Q"), HasSubstr("quotas, line 2: memory:"));
  EXPECT_THAT(error("a colour=red"), HasSubstr("legal: memory, models, push, sessions"));
  EXPECT_THAT(error("a models=0"), HasSubstr("a whole number from 1"));
  EXPECT_THAT(error("a models=1\na models=2"), HasSubstr("quotas, line 2: 'a' has a line already"));
}

TEST_F(ModelStoreTest, APrincipalPushesSoMuchAtOnce) {
  ModelStore store(&*engine_, 1000 * kKiB, 400 * kKiB);
  ModelStore::Reservation first, second, others;
  EXPECT_TRUE(store.reserve(first, 300 * kKiB, "m", "alice").ok());
  const Status refused = store.reserve(second, 200 * kKiB, "n", "alice");
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("'alice' is pushing 307.2 kB already, of 409.6 kB at once"));
  EXPECT_TRUE(store.reserve(others, 400 * kKiB, "n", "bob").ok());
  EXPECT_EQ(store.reserve(others, 1, "n", "bob").code(), Code::kResourceExhausted) << "it could never be";
  first = {};
  EXPECT_TRUE(store.reserve(second, 200 * kKiB, "n", "alice").ok());
}

}  // namespace
}  // namespace fairlead::cli
