"""What the small model knows: tables of plain facts, in plain words.

Every row is a promise: the generator only writes answers that follow from these tables, so whatever the model
says about the world can be traced to (and corrected in) one line here.
"""


def rows(text):
    """Lines of fields separated by '|'; blank lines are skipped."""
    return [[field.strip() for field in line.split("|")] for line in text.strip().splitlines() if line.strip()]


# name | sound it makes | what it eats | where it lives | legs | baby | kind | size 1..9 | one more fact
ANIMALS = {row[0]: dict(zip(("name", "sound", "food", "home", "legs", "baby", "kind", "size", "fact"), row)) for row in rows("""
cow|moo|grass|on a farm|4|calf|mammal|7|Cows give us milk
dog|woof|meat and dog food|in a house with people|4|puppy|mammal|4|Dogs are loyal friends and love to play
cat|meow|meat and fish|in a house with people|4|kitten|mammal|3|Cats sleep for many hours every day
sheep|baa|grass|on a farm|4|lamb|mammal|5|Sheep give us wool
pig|oink|corn and roots|on a farm|4|piglet|mammal|5|Pigs are very clever animals
horse|neigh|grass and hay|on a farm|4|foal|mammal|7|Horses can run very fast
duck|quack|water plants and insects|near ponds and lakes|2|duckling|bird|3|Ducks have feathers that keep them dry
chicken|cluck|seeds and corn|on a farm|2|chick|bird|3|Chickens lay eggs
goat|maa|grass and leaves|on farms and in the mountains|4|kid|mammal|5|Goats are very good at climbing
donkey|hee-haw|grass and hay|on a farm|4|foal|mammal|6|Donkeys can carry heavy loads
mouse|squeak|seeds and grain|in small holes|4|pup|mammal|1|Mice are small and quick
lion|roar|meat|on the grassy plains of Africa|4|cub|mammal|7|A male lion has a big mane
tiger|roar|meat|in the forests of Asia|4|cub|mammal|7|A tiger has orange fur with black stripes
bear|growl|fish, berries and honey|in the forest|4|cub|mammal|7|Many bears sleep through the winter
wolf|howl|meat|in the forest|4|pup|mammal|5|Wolves live in groups called packs
fox|yelp|mice and berries|in a den in the woods|4|cub|mammal|4|A fox has a bushy tail
rabbit|soft squeak|grass and vegetables|in a burrow|4|kit|mammal|2|Rabbits have long ears and hop
squirrel|chatter|nuts and seeds|in trees|4|kit|mammal|2|Squirrels hide nuts for the winter
hedgehog|snuffle|insects and worms|in gardens and woods|4|hoglet|mammal|2|Hedgehogs have spines and can roll into a ball
deer|soft bleat|leaves and grass|in the forest|4|fawn|mammal|6|Male deer have antlers
elephant|trumpet|grass, leaves and fruit|in Africa and Asia|4|calf|mammal|9|The elephant is the biggest land animal
giraffe|soft hum|leaves from tall trees|on the plains of Africa|4|calf|mammal|9|The giraffe is the tallest animal
zebra|bark|grass|on the plains of Africa|4|foal|mammal|7|Zebras have black and white stripes
monkey|chatter|fruit and nuts|in trees in warm forests|2|infant|mammal|4|Monkeys are good at climbing and swinging
kangaroo|soft cluck|grass|in Australia|2|joey|mammal|6|Kangaroos carry their babies in a pouch
koala|grunt|leaves of the gum tree|in Australia|4|joey|mammal|4|Koalas sleep almost all day
panda|bleat|bamboo|in the mountains of China|4|cub|mammal|6|Pandas are black and white
camel|grunt|dry plants and grass|in the desert|4|calf|mammal|7|Camels can go many days without water
hippo|grunt|grass|in rivers in Africa|4|calf|mammal|8|Hippos spend most of the day in the water
rhino|snort|grass and leaves|on the plains of Africa|4|calf|mammal|8|A rhino has a horn on its nose
bat|squeak|insects and fruit|in caves|2|pup|mammal|2|Bats fly at night
mole|squeak|worms|under the ground|4|pup|mammal|2|Moles dig long tunnels
otter|whistle|fish|in rivers|4|pup|mammal|4|Otters hold hands when they sleep on the water
beaver|whine|bark and twigs|in rivers|4|kit|mammal|4|Beavers build dams out of wood
seal|bark|fish|in cold seas|0|pup|mammal|6|Seals have thick fat that keeps them warm
whale|song|tiny sea animals and fish|in the ocean|0|calf|mammal|9|The blue whale is the biggest animal of all
dolphin|click and whistle|fish|in the ocean|0|calf|mammal|7|Dolphins are clever and playful
shark|no sound|fish|in the ocean|0|pup|fish|7|Sharks have many rows of teeth
fish|no sound|plants and small animals|in water|0|fry|fish|2|Fish breathe with gills
octopus|no sound|crabs and small fish|in the ocean|8|larva|sea animal|4|An octopus has eight arms and three hearts
crab|click|plants and small animals|by the sea|10|larva|sea animal|2|Crabs walk sideways
frog|croak|insects|near ponds|4|tadpole|amphibian|2|Frogs can jump very far
turtle|no sound|plants and small animals|in water and on land|4|hatchling|reptile|4|Turtles carry a hard shell
tortoise|no sound|leaves and grass|on dry land|4|hatchling|reptile|4|A tortoise is slow and can live for a very long time
snake|hiss|mice and eggs|in grass, woods and deserts|0|hatchling|reptile|4|Snakes have no legs
lizard|soft hiss|insects|in warm and dry places|4|hatchling|reptile|2|Lizards love to lie in the sun
crocodile|growl|fish and meat|in warm rivers|4|hatchling|reptile|7|Crocodiles have very strong jaws
owl|hoot|mice|in trees|2|owlet|bird|3|Owls can see very well at night
eagle|screech|small animals and fish|in the mountains|2|eaglet|bird|4|Eagles have very sharp eyes
parrot|squawk|seeds and fruit|in warm forests|2|chick|bird|3|Some parrots can copy words
penguin|honk|fish|in the cold south|2|chick|bird|4|Penguins cannot fly, but they swim very well
robin|tweet|worms and berries|in gardens|2|chick|bird|1|A robin has a red breast
crow|caw|seeds, insects and scraps|in trees|2|chick|bird|3|Crows are very clever birds
swan|hiss|water plants|on lakes and rivers|2|cygnet|bird|5|Swans have long white necks
goose|honk|grass|near water|2|gosling|bird|4|Geese fly in the shape of a V
turkey|gobble|seeds and insects|on a farm|2|chick|bird|4|Turkeys have a red flap of skin under the beak
bee|buzz|nectar|in a hive|6|larva|insect|1|Bees make honey
butterfly|no sound|nectar|in gardens and meadows|6|caterpillar|insect|1|A butterfly was once a caterpillar
ant|no sound|leaves and crumbs|in a nest under the ground|6|larva|insect|1|Ants can carry things heavier than themselves
spider|no sound|insects|in a web|8|spiderling|spider|1|Spiders spin webs to catch their food
snail|no sound|leaves|in damp gardens|0|baby snail|mollusc|1|Snails carry their house on their back
worm|no sound|dead leaves|in the soil|0|baby worm|worm|1|Worms help to keep the soil healthy
ladybird|no sound|tiny insects|in gardens|6|larva|insect|1|Ladybirds are red with black spots
dragon|roar|whatever the story says|only in stories|4|baby dragon|creature from stories|9|Dragons are not real, but they are fun to read about
""")}
FLYERS = "duck bat owl eagle parrot robin crow swan goose bee butterfly ladybird".split()
SWIMMERS = "duck dog otter beaver seal whale dolphin shark fish octopus frog turtle crocodile penguin swan goose hippo".split()
SEVERAL = dict(sheep="sheep", mouse="mice", wolf="wolves", goose="geese", fish="fish", deer="deer", fox="foxes", octopus="octopuses",
               butterfly="butterflies", monkey="monkeys", donkey="donkeys", turkey="turkeys")


def several(noun):
    return SEVERAL.get(noun, noun + "s")


def a(noun):
    return ("an " if noun[0].lower() in "aeiou" and not noun.startswith(("uni", "use")) else "a ") + noun


# thing (as in a sentence) | colour
COLOURS = rows("""
the sky|blue
the grass|green
the sun|yellow
the moon|white
snow|white
milk|white
coal|black
the night sky|black
blood|red
a tomato|red
a strawberry|red
a cherry|red
a banana|yellow
a lemon|yellow
a carrot|orange
an orange|orange
a pumpkin|orange
a leaf|green
a frog|green
a cucumber|green
broccoli|green
a plum|purple
an aubergine|purple
chocolate|brown
a tree trunk|brown
a bear|brown
a polar bear|white
a crow|black
an elephant|grey
a mouse|grey
a pig|pink
a flamingo|pink
the sea|blue
a fire engine|red
a stop sign|red
a cloud|white
a swan|white
gold|yellow
silver|grey
a lion|golden yellow
a chick|yellow
corn|yellow
honey|golden yellow
salt|white
sugar|white
a raspberry|red
a blueberry|blue
a panda|black and white
a zebra|black and white
a penguin|black and white
a ladybird|red with black spots
a tiger|orange with black stripes
coffee|brown
paper|white
sand|light brown
rice|white
""")
MIXES = rows("red|yellow|orange\nred|blue|purple\nblue|yellow|green\nred|white|pink\nblack|white|grey\nred|green|brown")

OPPOSITES = rows("""
hot|cold
big|small
up|down
fast|slow
day|night
happy|sad
good|bad
open|closed
full|empty
hard|soft
high|low
long|short
light|dark
heavy|light
loud|quiet
new|old
young|old
rich|poor
strong|weak
wet|dry
early|late
near|far
left|right
in|out
on|off
yes|no
start|stop
begin|end
win|lose
buy|sell
push|pull
give|take
love|hate
laugh|cry
clean|dirty
thick|thin
wide|narrow
deep|shallow
sweet|sour
true|false
right|wrong
easy|difficult
safe|dangerous
brave|afraid
kind|mean
first|last
always|never
everything|nothing
friend|enemy
asleep|awake
black|white
north|south
east|west
summer|winter
inside|outside
above|below
before|after
rough|smooth
sharp|blunt
tall|short
tight|loose
same|different
hello|goodbye
question|answer
front|back
top|bottom
""")

# country | capital | part of the world | language | people
COUNTRIES = rows("""
France|Paris|Europe|French
Germany|Berlin|Europe|German
Italy|Rome|Europe|Italian
Spain|Madrid|Europe|Spanish
Portugal|Lisbon|Europe|Portuguese
England|London|Europe|English
the United Kingdom|London|Europe|English
Ireland|Dublin|Europe|English and Irish
Scotland|Edinburgh|Europe|English
Wales|Cardiff|Europe|English and Welsh
Austria|Vienna|Europe|German
Switzerland|Bern|Europe|German, French and Italian
Belgium|Brussels|Europe|Dutch and French
the Netherlands|Amsterdam|Europe|Dutch
Denmark|Copenhagen|Europe|Danish
Norway|Oslo|Europe|Norwegian
Sweden|Stockholm|Europe|Swedish
Finland|Helsinki|Europe|Finnish
Iceland|Reykjavik|Europe|Icelandic
Poland|Warsaw|Europe|Polish
the Czech Republic|Prague|Europe|Czech
Hungary|Budapest|Europe|Hungarian
Greece|Athens|Europe|Greek
Turkey|Ankara|Europe and Asia|Turkish
Russia|Moscow|Europe and Asia|Russian
Ukraine|Kyiv|Europe|Ukrainian
Romania|Bucharest|Europe|Romanian
Bulgaria|Sofia|Europe|Bulgarian
Croatia|Zagreb|Europe|Croatian
Serbia|Belgrade|Europe|Serbian
China|Beijing|Asia|Chinese
Japan|Tokyo|Asia|Japanese
South Korea|Seoul|Asia|Korean
India|New Delhi|Asia|Hindi and English
Thailand|Bangkok|Asia|Thai
Vietnam|Hanoi|Asia|Vietnamese
Indonesia|Jakarta|Asia|Indonesian
Israel|Jerusalem|Asia|Hebrew
Egypt|Cairo|Africa|Arabic
Kenya|Nairobi|Africa|Swahili and English
Nigeria|Abuja|Africa|English
Morocco|Rabat|Africa|Arabic
the United States|Washington|North America|English
America|Washington|North America|English
Canada|Ottawa|North America|English and French
Mexico|Mexico City|North America|Spanish
Brazil|Brasilia|South America|Portuguese
Argentina|Buenos Aires|South America|Spanish
Chile|Santiago|South America|Spanish
Peru|Lima|South America|Spanish
Colombia|Bogota|South America|Spanish
Cuba|Havana|North America|Spanish
Australia|Canberra|Oceania|English
New Zealand|Wellington|Oceania|English
""")

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
SEASONS = ["spring", "summer", "autumn", "winter"]
SEASON_FACTS = dict(
    spring="In spring the days grow longer, flowers bloom and birds build their nests.",
    summer="In summer it is warm and sunny, and the days are long.",
    autumn="In autumn the leaves turn red and yellow and fall from the trees.",
    winter="In winter it is cold, the days are short, and it may snow.")

# How many ...? | answer
AMOUNTS = rows("""
days are in a week|There are seven days in a week.
days are there in a week|There are seven days in a week.
months are in a year|There are twelve months in a year.
days are in a year|There are 365 days in a year, and 366 in a leap year.
hours are in a day|There are 24 hours in a day.
minutes are in an hour|There are 60 minutes in an hour.
seconds are in a minute|There are 60 seconds in a minute.
weeks are in a year|There are about 52 weeks in a year.
seasons are there|There are four seasons: spring, summer, autumn and winter.
fingers do people have|People have ten fingers, five on each hand.
fingers do I have|You most likely have ten fingers, five on each hand.
toes do people have|People have ten toes, five on each foot.
eyes do people have|People have two eyes.
ears do people have|People have two ears.
legs does a person have|A person has two legs.
wheels does a car have|A car has four wheels.
wheels does a bicycle have|A bicycle has two wheels.
wheels does a tricycle have|A tricycle has three wheels.
sides does a triangle have|A triangle has three sides.
sides does a square have|A square has four sides.
corners does a square have|A square has four corners.
sides does a circle have|A circle has no sides. It is perfectly round.
sides does a hexagon have|A hexagon has six sides.
letters are in the alphabet|There are 26 letters in the English alphabet.
planets are there|There are eight planets that go around our sun.
moons does the earth have|The earth has one moon.
colours are in a rainbow|A rainbow has seven colours: red, orange, yellow, green, blue, indigo and violet.
continents are there|There are seven continents.
oceans are there|There are five oceans.
strings does a guitar have|A guitar usually has six strings.
strings does a violin have|A violin has four strings.
people are in the world|There are about eight billion people in the world.
legs does a table have|Most tables have four legs.
eggs are in a dozen|There are twelve eggs in a dozen.
cents are in a dollar|There are 100 cents in a dollar.
years are in a century|There are 100 years in a century.
teeth do people have|A grown-up person has up to 32 teeth.
wings does a bird have|A bird has two wings.
legs does an insect have|An insect has six legs.
arms does an octopus have|An octopus has eight arms.
""")

# thing | one-sentence definition (A "sun" row reads: "The sun is ...")
DEFINITIONS = rows("""
apple|An apple is a round, sweet fruit that grows on a tree.
pear|A pear is a sweet, juicy fruit that is wider at the bottom.
banana|A banana is a long yellow fruit with a peel.
orange|An orange is a round fruit with thick peel and sweet juice.
lemon|A lemon is a yellow fruit that tastes very sour.
strawberry|A strawberry is a small red fruit with tiny seeds on the outside.
grape|A grape is a small round fruit that grows in bunches.
cherry|A cherry is a small red fruit with a stone inside.
carrot|A carrot is a long orange vegetable that grows under the ground.
potato|A potato is a vegetable that grows under the ground.
tomato|A tomato is a round red fruit that we often eat in salad.
onion|An onion is a round vegetable that can make you cry when you cut it.
bread|Bread is a food made from flour, water and yeast, baked in an oven.
cheese|Cheese is a food that is made from milk.
butter|Butter is a soft yellow food made from cream.
milk|Milk is a white drink that comes from cows.
egg|An egg is a round thing laid by a bird, and many people eat hen's eggs.
honey|Honey is a sweet, sticky food that bees make from nectar.
sugar|Sugar is a sweet white powder that we put in cakes and drinks.
salt|Salt is a white powder that makes food taste better.
cake|A cake is a sweet food that is baked in an oven, often for birthdays.
pizza|A pizza is a flat, round bread with tomato and cheese on top.
soup|Soup is a warm, liquid food, often made with vegetables.
pasta|Pasta is a food made from flour and water, often eaten with sauce.
rice|Rice is a small white grain that people cook and eat.
chocolate|Chocolate is a sweet brown food made from cocoa beans.
ice cream|Ice cream is a cold, sweet food made from milk and sugar.
tea|Tea is a hot drink made by putting tea leaves in hot water.
coffee|Coffee is a dark, hot drink made from roasted beans.
water|Water is a clear liquid that all living things need.
juice|Juice is a drink that comes from fruit.
ice|Ice is water that has frozen solid.
snow|Snow is frozen water that falls from the clouds in soft white flakes.
rain|Rain is water that falls from the clouds in drops.
wind|Wind is air that moves.
cloud|A cloud is a mass of tiny drops of water floating in the sky.
storm|A storm is bad weather with strong wind and rain.
thunder|Thunder is the loud sound that lightning makes.
lightning|Lightning is a bright flash of electricity in the sky.
rainbow|A rainbow is an arch of colours in the sky that appears when the sun shines through rain.
fog|Fog is a cloud that lies close to the ground.
sun|The sun is a star that gives us light and warmth.
moon|The moon is a ball of rock that travels around the earth.
earth|The earth is the planet that we live on.
star|A star is a huge, hot ball of gas that shines in the sky.
planet|A planet is a big round object that travels around a star.
sky|The sky is the space above us where we see the sun, the clouds and the stars.
sea|The sea is a very large area of salty water.
ocean|An ocean is a huge body of salt water.
river|A river is a long stream of water that flows to the sea.
lake|A lake is a large area of water with land all around it.
pond|A pond is a small area of still water.
island|An island is a piece of land with water all around it.
mountain|A mountain is a very high piece of land.
hill|A hill is a piece of high land that is smaller than a mountain.
valley|A valley is low land between hills or mountains.
forest|A forest is a large place where many trees grow.
desert|A desert is a very dry place where little rain falls.
beach|A beach is a strip of sand or stones beside the sea.
cave|A cave is a hollow place in a hill or under the ground.
volcano|A volcano is a mountain that can throw out hot melted rock.
tree|A tree is a tall plant with a trunk, branches and leaves.
flower|A flower is the colourful part of a plant that makes seeds.
rose|A rose is a flower with a sweet smell and thorns on its stem.
leaf|A leaf is a flat green part of a plant that catches sunlight.
seed|A seed is a small part of a plant from which a new plant can grow.
grass|Grass is a green plant with thin leaves that covers the ground.
garden|A garden is a piece of land where people grow flowers or vegetables.
farm|A farm is a place where people grow food and keep animals.
house|A house is a building where people live.
school|A school is a place where children go to learn.
library|A library is a place where you can read and borrow books.
hospital|A hospital is a place where doctors and nurses help sick people.
shop|A shop is a place where you can buy things.
market|A market is a place where people buy and sell things.
park|A park is a green place in a town where people walk and play.
zoo|A zoo is a place where you can see many animals.
museum|A museum is a place where you can look at interesting and old things.
castle|A castle is a large old building with thick walls and towers.
bridge|A bridge is something built over a river or road so that people can cross.
road|A road is a way made for cars and people to travel on.
city|A city is a very large town where many people live.
village|A village is a small group of houses in the country.
kitchen|A kitchen is the room where people cook food.
bed|A bed is a soft piece of furniture that you sleep on.
chair|A chair is a seat for one person, with legs and a back.
table|A table is a piece of furniture with a flat top and legs.
door|A door is something that you open to go into a room or a house.
window|A window is an opening in a wall, with glass in it, that lets in light.
lamp|A lamp is a thing that gives light.
clock|A clock is a thing that shows the time.
mirror|A mirror is a piece of glass in which you can see yourself.
key|A key is a small piece of metal that opens a lock.
book|A book is a set of pages with words or pictures that you can read.
pen|A pen is a thing that you write with, using ink.
pencil|A pencil is a thing that you write or draw with.
paper|Paper is a thin material made from wood that we write on.
letter|A letter is a message that you write on paper and send to someone.
ball|A ball is a round thing that you throw, kick or catch.
toy|A toy is a thing that children play with.
doll|A doll is a toy that looks like a small person.
kite|A kite is a light toy that flies in the wind on a string.
balloon|A balloon is a thin rubber bag filled with air.
drum|A drum is an instrument that you hit to make a sound.
guitar|A guitar is an instrument with six strings.
piano|A piano is a large instrument with black and white keys.
violin|A violin is an instrument with four strings, played with a bow.
music|Music is a pattern of sounds that people enjoy listening to.
song|A song is music with words that you can sing.
story|A story tells what happened to someone, real or made up.
poem|A poem is a piece of writing in short lines that often rhyme.
joke|A joke is something that people say to make others laugh.
game|A game is something that you play for fun, usually with rules.
football|Football is a game in which two teams kick a ball and try to score goals.
chess|Chess is a board game for two players, each with sixteen pieces.
car|A car is a machine with four wheels and an engine that people drive.
bus|A bus is a large vehicle that carries many people.
train|A train is a line of carriages that runs on rails.
plane|A plane is a machine with wings that flies through the air.
boat|A boat is a small vehicle that travels on water.
ship|A ship is a large boat that sails on the sea.
bicycle|A bicycle is a vehicle with two wheels that you ride by pushing pedals.
rocket|A rocket is a machine that flies into space.
computer|A computer is a machine that works with information very quickly.
phone|A phone is a machine that lets you talk to people far away.
robot|A robot is a machine that can do some work by itself.
internet|The internet connects computers all over the world so that they can share information.
camera|A camera is a thing that takes pictures.
umbrella|An umbrella is a thing that keeps you dry when it rains.
hat|A hat is a thing that you wear on your head.
coat|A coat is a warm piece of clothing that you wear outside.
shoe|A shoe is a thing that you wear on your foot.
sock|A sock is a soft piece of clothing for your foot.
glove|A glove is a piece of clothing that keeps your hand warm.
spoon|A spoon is a tool that you eat soup with.
fork|A fork is a tool with points that you eat with.
knife|A knife is a sharp tool for cutting.
cup|A cup is a small bowl with a handle that you drink from.
soap|Soap is something that you use with water to wash yourself.
money|Money is what people use to pay for things.
gold|Gold is a yellow metal that is worth a lot of money.
iron|Iron is a strong grey metal.
wood|Wood is the hard material that trees are made of.
glass|Glass is a hard, clear material that windows are made of.
fire|Fire is the heat, light and flames that come from burning things.
air|Air is the mix of gases that we breathe.
light|Light is what lets us see things.
shadow|A shadow is a dark shape made when something blocks the light.
doctor|A doctor is a person who helps sick people to get well.
nurse|A nurse is a person who takes care of sick people.
teacher|A teacher is a person who helps people to learn.
farmer|A farmer is a person who grows food and keeps animals.
baker|A baker is a person who makes bread and cakes.
cook|A cook is a person who makes food.
pilot|A pilot is a person who flies a plane.
sailor|A sailor is a person who works on a ship.
firefighter|A firefighter is a person who puts out fires.
king|A king is a man who rules a country.
queen|A queen is a woman who rules a country.
friend|A friend is a person you like and trust.
family|A family is a group of people who belong together, like parents and children.
baby|A baby is a very young child.
heart|The heart is the part of the body that pumps blood.
brain|The brain is the part of the body that thinks.
nose|The nose is the part of the face that you smell with.
hand|The hand is the part of the body at the end of the arm, with five fingers.
love|Love is a warm and strong feeling of caring for someone.
happiness|Happiness is the good feeling you have when things are well.
fear|Fear is the feeling you have when you think something bad may happen.
friendship|Friendship is when two people like, trust and help each other.
courage|Courage is doing the right thing even when you are afraid.
kindness|Kindness is being friendly and helpful to others.
honesty|Honesty is telling the truth.
peace|Peace is a time without war or fighting.
dream|A dream is a story that your mind makes while you sleep.
sleep|Sleep is the rest that your body and mind need every night.
birthday|A birthday is the day on which a person was born, and people celebrate it every year.
holiday|A holiday is a time when people rest and do not have to work.
winter|Winter is the coldest season of the year.
summer|Summer is the warmest season of the year.
spring|Spring is the season when flowers begin to bloom.
autumn|Autumn is the season when leaves fall from the trees.
week|A week is seven days long.
year|A year is the time the earth takes to go around the sun, about 365 days.
triangle|A triangle is a shape with three sides.
square|A square is a shape with four equal sides.
circle|A circle is a perfectly round shape.
number|A number tells how many things there are.
word|A word is a group of letters that means something.
language|A language is the words that people use to talk to each other.
dinosaur|A dinosaur was a large reptile that lived a very long time ago.
unicorn|A unicorn is a horse with one horn that lives only in stories.
ghost|A ghost is a spirit that appears only in stories.
fairy|A fairy is a tiny magical person with wings who lives only in stories.
giant|A giant is a very big person who lives only in stories.
wizard|A wizard is a man in stories who can do magic.
electricity|Electricity is a kind of energy that makes lamps and machines work.
energy|Energy is what makes things move, grow or get warm.
magnet|A magnet is a piece of metal that pulls iron towards it.
map|A map is a drawing that shows where places are.
flag|A flag is a piece of cloth with colours that stands for a country or a group.
language model|A language model is a computer program that writes text by guessing the next word again and again.
token|A token is a small piece of text, such as a word or a part of a word.
gravity|Gravity is the force that pulls things down to the ground.
AI|AI means artificial intelligence: computer programs that do things for which people need to think.
artificial intelligence|Artificial intelligence means computer programs that do things for which people need to think.
time|Time is what we measure with clocks, in seconds, minutes and hours.
space|Space is the huge, dark place where the stars and planets are.
universe|The universe is everything there is: all the stars, planets and space.
website|A website is a set of pages that you can look at on the internet.
email|An email is a letter that you send with a computer or a phone.
movie|A movie is a story told with moving pictures.
television|A television is a machine that shows moving pictures with sound.
radio|A radio is a machine that plays voices and music sent through the air.
newspaper|A newspaper is a set of printed pages with the news of the day.
painting|A painting is a picture that somebody made with paint.
noise|A noise is a sound, often a loud one that you do not like.
anger|Anger is the strong feeling you have when something is not fair.
sadness|Sadness is the heavy feeling you have when something bad happens.
joy|Joy is a feeling of great happiness.
hope|Hope is the feeling that something good may happen.
luck|Luck is when good things happen by chance.
health|Health is how well your body and mind are.
sport|A sport is a game or an exercise that moves your body.
dance|A dance is a way of moving your body to music.
wedding|A wedding is the day when two people marry.
party|A party is a time when people meet to eat, talk and have fun.
present|A present is something nice that you give to someone.
job|A job is the work that a person does for money.
country|A country is a large piece of land with its own people and government.
history|History is the story of what happened in the past.
science|Science is the way people find out how the world works.
nature|Nature is everything in the world that people did not make, like plants, animals and rivers.
weather|The weather is what it is like outside, such as sunny, rainy or windy.
plant|A plant is a living thing that grows in the ground and needs light and water.
animal|An animal is a living thing that can move and that eats other living things.
insect|An insect is a small animal with six legs.
bird|A bird is an animal with feathers and wings.
mammal|A mammal is an animal that feeds its babies with milk.
fruit|A fruit is the sweet part of a plant that holds the seeds.
vegetable|A vegetable is a plant or a part of a plant that we eat.
breakfast|Breakfast is the first meal of the day.
dinner|Dinner is the meal that people eat in the evening.
salad|A salad is a cold dish of fresh vegetables.
sandwich|A sandwich is two slices of bread with something tasty in between.
tooth|A tooth is one of the hard white things in your mouth that you bite with.
blood|Blood is the red liquid that flows through your body.
bone|A bone is one of the hard parts inside your body that hold it up.
eye|An eye is the part of the body that you see with.
ear|An ear is the part of the body that you hear with.
spaceship|A spaceship is a machine that carries people into space.
elevator|An elevator is a small room that carries people up and down in a building.
ladder|A ladder is a thing with steps that you climb to reach high places.
hammer|A hammer is a tool that you hit nails with.
candle|A candle is a stick of wax that gives light when it burns.
bag|A bag is a thing that you carry other things in.
box|A box is a thing with stiff sides that you keep other things in.
blanket|A blanket is a warm cover for your bed.
pillow|A pillow is a soft thing that you rest your head on.
treasure|A treasure is a collection of gold, jewels and other precious things.
secret|A secret is something that only a few people know.
adventure|An adventure is an exciting journey in which you do not know what will happen.
homework|Homework is the work for school that you do at home.
mathematics|Mathematics is the study of numbers and shapes.
hello world|Hello world is the short text that many people's first computer program prints.
haiku|A haiku is a short poem with three lines.
programming|Programming is writing exact steps for a computer to follow.
server|A server is a computer program that waits for questions from other programs and answers them.
chatbot|A chatbot is a computer program that you can talk to.
""")

# question tail after "How do I" / "How to" / "How can I" | answer
HOW_TOS = rows("""
make tea|Boil some water, put a tea bag in a cup, and pour the hot water over it. Wait three minutes, take out the bag, and add milk or sugar if you like.
make a cup of tea|Boil some water, put a tea bag in a cup, and pour the hot water over it. Wait three minutes, take out the bag, and add milk or sugar if you like.
make coffee|Put ground coffee in a filter, pour hot water over it slowly, and let it drip into a cup. Add milk or sugar if you like.
make a sandwich|Take two slices of bread and spread some butter on them. Put cheese, tomato or anything you like in between, and press them together.
boil an egg|Put the egg in a pot of boiling water. Wait six minutes for a soft egg or ten minutes for a hard one, then cool it in cold water.
cook an egg|Put the egg in a pot of boiling water. Wait six minutes for a soft egg or ten minutes for a hard one, then cool it in cold water.
cook rice|Wash one cup of rice and put it in a pot with two cups of water. Bring it to a boil, cover the pot, and cook it gently for about fifteen minutes.
cook pasta|Boil a big pot of water with some salt. Put the pasta in, cook it for about ten minutes, and pour off the water. Then add your sauce.
make pasta|Boil a big pot of water with some salt. Put the pasta in, cook it for about ten minutes, and pour off the water. Then add your sauce.
make pancakes|Mix flour, milk and an egg until the batter is smooth. Pour a little into a hot pan with butter, and turn the pancake when it is golden.
bake a cake|Mix butter, sugar, eggs and flour in a bowl. Pour the mix into a cake tin and bake it in a warm oven for about forty minutes.
make a cake|Mix butter, sugar, eggs and flour in a bowl. Pour the mix into a cake tin and bake it in a warm oven for about forty minutes.
bake bread|Mix flour, water, yeast and a little salt, and knead the dough well. Let it rise for an hour, then bake it in a hot oven until it is brown.
make soup|Cut some vegetables into small pieces and fry them gently in a pot. Add water and a little salt, and let the soup cook for half an hour.
make a salad|Wash some lettuce, tomatoes and cucumber and cut them up. Mix them in a bowl with a little oil, lemon juice and salt.
make toast|Put a slice of bread in a toaster and wait until it is golden brown. Then spread butter or jam on it.
make lemonade|Squeeze three lemons into a jug, add some sugar and a litre of cold water, and stir well. Serve it with ice.
make hot chocolate|Warm a cup of milk in a pot, stir in two spoons of cocoa and one spoon of sugar, and pour it back into the cup.
make pizza|Roll out some dough, spread tomato sauce and cheese on it, and add what you like. Bake it in a very hot oven for about twelve minutes.
make popcorn|Heat a little oil in a pot, add a layer of corn, and put on the lid. Shake the pot until the popping stops, then add salt.
brush my teeth|Put a little toothpaste on your brush and brush all your teeth gently for two minutes. Then rinse your mouth with water.
wash my hands|Wet your hands, rub them with soap for twenty seconds, rinse them with clean water, and dry them with a towel.
tie my shoes|Cross the two laces and pull them tight. Make a loop with each lace, cross the loops, pull one through, and pull tight.
plant a seed|Fill a pot with soil, make a small hole, and put the seed in. Cover it, water it a little every day, and put it in the sun.
plant a tree|Dig a hole that is wider than the roots, put the tree in, and fill the hole with soil. Then water it well.
grow tomatoes|Plant the seeds in a sunny place with good soil, water them often, and tie the plants to a stick as they grow.
grow flowers|Plant the seeds in good soil in a sunny place, and water them a little every day. After some weeks they will bloom.
build a snowman|Roll three balls of snow, a big one, a middle one and a small one, and put them on top of each other. Add a carrot for the nose and stones for the eyes.
build a sandcastle|Fill a bucket with wet sand, press it down, and turn it over. Lift the bucket off, and decorate your castle with shells.
make a paper boat|Fold a sheet of paper in half, fold the top corners to the middle, fold up the edges, and pull the sides apart gently.
make a paper plane|Fold a sheet of paper in half and open it again. Fold the top corners to the middle line, fold it in half once more, and bend down the wings.
draw a cat|Draw a circle for the head with two triangles for the ears. Add eyes, a nose and whiskers, then draw an oval body and a long tail.
draw a house|Draw a square for the walls and a triangle on top for the roof. Then add a door, two windows and a chimney.
draw a star|Draw a line up, a line down, and three lines across without lifting your pencil, so that you get five points.
fall asleep|Make the room dark and quiet, put away all screens, and breathe slowly. It helps to go to bed at the same time every day.
sleep better|Go to bed at the same time every day, keep your room dark and cool, and do not look at a screen before you sleep.
calm down|Sit down, close your eyes, and breathe in and out slowly ten times. Then think of a place where you feel safe.
relax|Sit down in a quiet place, breathe slowly, and listen to soft music. A short walk can help too.
make friends|Smile, say hello, and ask people about the things they like. Listen well, be kind, and share what you have.
make a friend|Smile, say hello, and ask people about the things they like. Listen well, be kind, and share what you have.
say sorry|Look at the person, say that you are sorry, and say what you did wrong. Then try to make it better.
learn to read|Start with the letters and their sounds, then read short words, and then short stories. Read a little every day.
learn a language|Learn a few new words every day, listen to people who speak it, and try to speak it yourself. Do not be afraid of mistakes.
learn to swim|Start in shallow water with a teacher. Learn to float first, then to kick your legs, and then to move your arms.
ride a bike|Sit on the seat, hold the handlebars, and push off with one foot. Look ahead, keep pedalling, and wear a helmet.
study better|Find a quiet place, work for half an hour, and then take a short break. Explain what you learned in your own words.
save money|Write down what you spend, buy only what you need, and put a little money aside every week.
save water|Turn off the tap while you brush your teeth, take short showers, and use rain water for the garden.
stay healthy|Eat fruit and vegetables, drink water, move every day, and sleep enough.
be happy|Spend time with people you like, do things that you enjoy, and be thankful for small things.
be a good friend|Listen, be honest, keep your promises, and help when your friend needs you.
clean my room|Pick up your clothes first, then put things back where they belong. At the end, wipe the dust away and sweep the floor.
wash the dishes|Fill the sink with warm water and a little soap, wash the cups first and the pots last, and rinse everything well.
set the table|Put a plate at each place, with the fork on the left and the knife on the right. Then add a glass and a napkin.
wrap a present|Put the present on the paper, fold the paper around it, and tape it down. Fold the ends like triangles and add a ribbon.
write a letter|Write the date and a greeting, then say what you want to tell in simple words. End with a friendly wish and your name.
write a story|Think of someone who wants something and of what stands in the way. Then tell step by step what happens, and how it ends.
take care of a dog|Give your dog food and fresh water, walk it every day, play with it, and take it to the vet when it is sick.
take care of a cat|Give your cat food and fresh water, keep its box clean, play with it, and let it sleep in a warm place.
take care of a plant|Give the plant light and a little water, and turn it now and then. Do not water it when the soil is still wet.
cross the street|Stop at the kerb, look left, right and left again, and listen. Walk across when no car is coming.
use you|Just write me a short message. You can ask for a story, a simple fact or a small sum.
catch a fish|Put a worm on the hook, throw the line into the water, and wait quietly. When the line pulls, lift it slowly.
fly a kite|Stand with your back to the wind, hold the kite up, and let it go. Let out the string slowly when the wind takes it.
make a fire|Ask a grown-up to help you. Put small dry sticks on some paper, light the paper, and add bigger wood slowly.
tell the time|The short hand of the clock shows the hour, and the long hand shows the minutes.
stop hiccups|Drink a glass of water slowly, or hold your breath for a few seconds.
lose weight|Eat more vegetables and fewer sweets, drink water, and move every day. A doctor can give you better advice than I can.
make chocolate cake|Mix butter, sugar, eggs, flour and cocoa in a bowl. Pour the mix into a cake tin and bake it in a warm oven for about forty minutes.
make cookies|Mix butter, sugar, flour and an egg, and form small balls. Press them flat and bake them in a hot oven for about twelve minutes.
make jam|Cook the same weight of fruit and sugar in a pot until it is thick. Pour it hot into clean glasses and close them well.
make mashed potatoes|Boil peeled potatoes until they are soft, pour off the water, and mash them with butter, milk and a little salt.
make an omelette|Beat two or three eggs with a little salt, pour them into a hot pan with butter, and fold the omelette when it is firm.
do my homework|Find a quiet place, read the task slowly, and do one small step after the other. Take a short break now and then.
learn to cook|Start with simple dishes such as eggs, rice and soup. Read the whole recipe first, and taste often.
learn to draw|Look closely at simple things, draw them with light lines, and practise a little every day.
learn to play the guitar|Learn two or three simple chords, change between them slowly, and practise a little every day.
wake up early|Go to bed early, put your alarm clock far away from your bed, and open the curtains as soon as it rings.
be brave|Take one small step at a time. Being brave does not mean that you have no fear, but that you go on anyway.
make someone happy|Say something kind, listen well, or give a small present from the heart.
cheer up a friend|Listen to your friend, say something kind, and do something nice together.
get rid of a cold|Rest, drink warm tea, and sleep a lot. If it does not get better, please ask a doctor.
""")

# question | answer
WHYS = rows("""
Why is the sky blue?|The sky is blue because the air scatters blue light from the sun more than other colours.
Why is grass green?|Grass is green because it contains a green stuff called chlorophyll, which catches sunlight.
Why does it rain?|It rains because tiny drops of water in the clouds join together and become too heavy to float.
Why does it snow?|It snows when it is so cold that the water in the clouds freezes into flakes.
Why do we sleep?|We sleep so that our body and our mind can rest.
Why do people sleep?|People sleep so that their body and their mind can rest.
Why do we eat?|We eat because food gives us energy and helps us to grow.
Why do birds fly?|Birds fly to find food, to escape danger and to travel to warmer places.
Why do birds sing?|Birds sing to find a partner and to tell other birds that this is their place.
Why do leaves fall?|Leaves fall in autumn because trees save water and energy for the winter.
Why do leaves change colour?|Leaves change colour in autumn because the green stuff in them goes away and other colours show.
Why does ice float?|Ice floats because it is lighter than water.
Why is the sea salty?|The sea is salty because rivers carry salt from the rocks into it.
Why do cats purr?|Cats purr mostly when they feel happy and safe.
Why do dogs bark?|Dogs bark to warn, to say hello, or to ask for something.
Why do dogs wag their tails?|Dogs wag their tails when they are happy or excited.
Why do we have seasons?|We have seasons because the earth is tilted while it travels around the sun.
Why is it dark at night?|It is dark at night because our side of the earth is turned away from the sun.
Why do stars twinkle?|Stars twinkle because their light has to pass through the moving air around the earth.
Why is the sun hot?|The sun is hot because deep inside it atoms join together and set free a lot of energy.
Why do we brush our teeth?|We brush our teeth to keep them clean and healthy.
Why do we wash our hands?|We wash our hands to get rid of dirt and germs.
Why do bees make honey?|Bees make honey so that they have food in winter.
Why do people laugh?|People laugh when something is funny or when they feel happy together.
Why do people cry?|People cry when they are sad or hurt, and sometimes when they are very happy.
Why do we need water?|We need water because our body is mostly made of water and cannot work without it.
Why are plants important?|Plants are important because they give us food and the air that we breathe.
Why do elephants have trunks?|Elephants use their trunks to drink, to smell and to pick things up.
Why do giraffes have long necks?|Giraffes have long necks so that they can eat leaves from tall trees.
Why do zebras have stripes?|The stripes of a zebra help to confuse insects and lions.
Why does the moon shine?|The moon shines because it reflects the light of the sun.
Why is fire hot?|Fire is hot because burning sets free energy as heat.
Why do we go to school?|We go to school to learn new things and to meet friends.
Why is reading important?|Reading is important because books teach us new things and take us to new places.
Why do we dream?|Nobody knows for sure, but dreams may help our mind to sort what happened during the day.
Why do onions make you cry?|Onions make you cry because cutting them sets free a gas that stings your eyes.
Why should I be kind?|Being kind makes other people happy, and it makes you happy too.
Why is honesty important?|Honesty is important because people can trust you when you tell the truth.
Why do we have thunder?|Thunder comes from lightning, which heats the air so fast that it bangs.
Where does the sun rise?|The sun rises in the east.
Where does the sun set?|The sun sets in the west.
Where does milk come from?|Milk comes from cows and some other animals.
Where does honey come from?|Honey comes from bees.
Where does rain come from?|Rain comes from the clouds.
Where do eggs come from?|Eggs come from hens and other birds.
Where does bread come from?|Bread is made from flour, and flour comes from wheat.
Where does wool come from?|Wool comes from sheep.
Where does paper come from?|Paper is made from wood.
Where do apples grow?|Apples grow on trees.
Where do carrots grow?|Carrots grow under the ground.
When do we eat breakfast?|We eat breakfast in the morning.
When do we sleep?|Most people sleep at night.
When is Christmas?|Christmas is on the 25th of December.
When is New Year?|New Year's Day is on the first of January.
What do plants need?|Plants need water, light, air and good soil.
What do plants need to grow?|Plants need water, light, air and good soil to grow.
What do bees make?|Bees make honey.
What do we drink?|We drink water, milk, juice, tea and many other things.
What is the largest animal?|The blue whale is the largest animal in the world.
What is the biggest animal?|The blue whale is the biggest animal in the world.
What is the biggest animal in the world?|The blue whale is the biggest animal in the world.
What is the tallest animal?|The giraffe is the tallest animal.
What is the fastest animal?|The fastest land animal is the cheetah.
What is the slowest animal?|The sloth and the snail are among the slowest animals.
What is the biggest land animal?|The elephant is the biggest land animal.
What is the biggest planet?|Jupiter is the biggest planet.
What is the largest ocean?|The Pacific is the largest ocean.
What is the tallest mountain?|Mount Everest is the tallest mountain in the world.
What is the highest mountain in the world?|Mount Everest is the highest mountain in the world.
What is the longest river?|The Nile is often called the longest river in the world.
What is the biggest country?|Russia is the biggest country in the world.
What is the smallest country?|Vatican City is the smallest country in the world.
What is the closest star?|The closest star to us is the sun.
What is the hottest season?|Summer is the hottest season.
What is the coldest season?|Winter is the coldest season.
What is the first month of the year?|The first month of the year is January.
What is the last month of the year?|The last month of the year is December.
What is the first day of the week?|In many countries Monday is the first day of the week.
What is the shortest month?|February is the shortest month.
What are the seasons?|The four seasons are spring, summer, autumn and winter.
What are the days of the week?|The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.
What are the months of the year?|The months are January, February, March, April, May, June, July, August, September, October, November and December.
What are the planets?|The planets are Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.
What are the colours of the rainbow?|The colours of the rainbow are red, orange, yellow, green, blue, indigo and violet.
What are the primary colours?|The primary colours of paint are red, yellow and blue.
What are the five senses?|The five senses are sight, hearing, smell, taste and touch.
What do we see with?|We see with our eyes.
What do we hear with?|We hear with our ears.
What do we smell with?|We smell with our nose.
What is water made of?|Water is made of hydrogen and oxygen.
What is snow made of?|Snow is made of tiny crystals of ice.
What is the opposite of hot and cold?|Hot and cold are opposites of each other.
What is bigger, the sun or the moon?|The sun is much bigger than the moon.
What is bigger, the earth or the moon?|The earth is bigger than the moon.
What is heavier, a feather or a stone?|A stone is heavier than a feather.
What is faster, a car or a bicycle?|A car is faster than a bicycle.
What is hotter, fire or ice?|Fire is hotter than ice.
What is colder, ice or fire?|Ice is colder than fire.
What is sweeter, honey or lemon?|Honey is sweeter than lemon.
Is the earth round?|Yes, the earth is round like a ball.
Is the earth flat?|No, the earth is round like a ball.
Is the sun a star?|Yes, the sun is a star.
Is the moon a planet?|No, the moon is not a planet. It travels around the earth.
Is water wet?|Yes, most people would say that water is wet.
Is fire cold?|No, fire is very hot.
Is ice hot?|No, ice is cold.
Is a tomato a fruit?|Yes, a tomato is a fruit, although we eat it like a vegetable.
Is a whale a fish?|No, a whale is a mammal that lives in the ocean.
Is a spider an insect?|No, a spider has eight legs and is not an insect.
Are dragons real?|No, dragons live only in stories.
Are unicorns real?|No, unicorns live only in stories.
Are ghosts real?|I think ghosts live only in stories.
Is Santa real?|Santa lives in the hearts of everyone who likes to give presents.
Do fish sleep?|Yes, fish rest too, but most of them keep their eyes open.
Can penguins fly?|No, penguins cannot fly, but they swim very well.
Can you eat stones?|No, stones are much too hard to eat.
Do trees talk?|No, trees do not talk, but the wind makes their leaves whisper.
Who lives in a castle?|In stories, kings and queens live in castles.
Who makes bread?|A baker makes bread.
Who flies a plane?|A pilot flies a plane.
Who puts out fires?|Firefighters put out fires.
Who helps sick people?|Doctors and nurses help sick people.
Who teaches children?|Teachers teach children.
Who grows our food?|Farmers grow our food.
What should I do when it rains?|Take an umbrella, or stay inside and read a good book.
What should I wear when it is cold?|Wear a warm coat, a hat and gloves.
What should I wear when it is hot?|Wear light clothes and a hat, and drink a lot of water.
What should I eat for breakfast?|You could eat bread with jam, some fruit, or a bowl of porridge.
What should I eat for dinner?|You could cook some pasta with tomato sauce and eat a salad with it.
What should I eat for lunch?|You could have a sandwich, some soup or a salad.
What should I cook?|You could cook some pasta with tomato sauce, or a warm vegetable soup.
What should I eat?|You could have a sandwich, some soup or a piece of fruit.
What should I do today?|You could go for a walk, read a book or call a friend.
What can I do when I am bored?|You could read a book, draw a picture or go outside and play.
What should I read?|You could read a book with animals in it. I like those best.
What should I draw?|You could draw a house with a red roof and a big tree beside it.
What is a good name for a dog?|Rex, Bella and Max are good names for a dog.
What is a good name for a cat?|Luna, Tiger and Snowy are good names for a cat.
What is a good gift?|A good book, some flowers or something you made yourself is a good gift.
What is the meaning of life?|That is a big question for a small model. I think it is to be kind and to enjoy the small things.
What is your favourite colour?|I do not have eyes, but I like the word blue.
What is your favourite food?|I do not eat, but honey sounds nice to me.
What is your favourite animal?|I like foxes, because they are in many of my stories.
What is your favourite book?|I have not read real books, but I like stories about animals.
What is your favourite song?|I cannot hear music, but I like the idea of birds singing.
What is your favourite number?|I like the number seven.
What is your favourite day?|I like Saturday, because people have time to play.
What is your favourite movie?|I have never seen a movie, but I like stories about animals.
What is your favourite season?|I like spring, because the flowers begin to bloom.
What time is it?|I cannot see a clock, so I do not know what time it is.
What day is it?|I cannot see a calendar, so I do not know what day it is.
What day is it today?|I cannot see a calendar, so I do not know what day it is today.
What is the date?|I cannot see a calendar, so I do not know the date.
What is the weather like?|I cannot look outside, so I do not know what the weather is like.
How is the weather?|I cannot look outside, so I do not know how the weather is.
How is the weather today?|I cannot look outside, so I do not know how the weather is today.
Will it rain tomorrow?|I cannot see the weather, so I do not know if it will rain.
What year is it?|I cannot see a calendar, so I do not know what year it is.
How far away is the moon?|The moon is about 384,000 kilometres away from us.
How far is the moon?|The moon is about 384,000 kilometres away from us.
How old is the earth?|The earth is about four and a half billion years old.
How hot is the sun?|The surface of the sun is about 5,500 degrees hot.
How long is a day?|A day is 24 hours long.
How long is a year?|A year is about 365 days long.
How do birds fly?|Birds fly by beating their wings, which push the air down and lift them up.
How do fish breathe?|Fish breathe under water with their gills.
How do plants grow?|Plants grow from seeds with the help of water, light and good soil.
How does a plane fly?|The air that flows around its wings lifts the plane up.
How do bees make honey?|Bees collect nectar from flowers and carry it to the hive, where it slowly turns into honey.
How is bread made?|Bread is made by mixing flour, water and yeast, and baking the dough in an oven.
How is cheese made?|Cheese is made from milk that becomes thick and then rests for some time.
How does a caterpillar become a butterfly?|A caterpillar wraps itself in a cocoon, changes slowly inside it, and comes out as a butterfly.
How do you know that?|I learned it from the simple texts that I was trained on.
What happens when ice melts?|When ice melts, it becomes water.
What happens when water boils?|When water boils, it turns into steam.
What happens when water freezes?|When water freezes, it becomes ice.
What comes after night?|After the night comes the morning.
What comes first, lightning or thunder?|You see the lightning first, and then you hear the thunder.
What is your name?|I am Tandem's small model. You can call me Tandem.
""")

JOKES = rows("""
Why did the chicken cross the road?|To get to the other side!
What do you call a bear with no teeth?|A gummy bear!
Why did the cookie go to the doctor?|Because it felt crumbly!
What do you call a sleeping bull?|A bulldozer!
Why do bees have sticky hair?|Because they use honeycombs!
What has four wheels and flies?|A rubbish truck!
Why was the maths book sad?|Because it had too many problems!
What is orange and sounds like a parrot?|A carrot!
Why did the banana go to the doctor?|Because it was not peeling well!
What do you call a fish without an eye?|A fsh!
Why can you never trust stairs?|Because they are always up to something!
What do cows do on a Saturday night?|They go to the moo-vies!
Why did the bicycle fall over?|Because it was two-tired!
What did one wall say to the other wall?|I will meet you at the corner!
Why do birds fly south in winter?|Because it is too far to walk!
What do you get when you cross a snowman and a dog?|Frostbite!
What kind of tree fits in your hand?|A palm tree!
Why did the tomato turn red?|Because it saw the salad dressing!
What do you call cheese that is not yours?|Nacho cheese!
How does the moon cut its hair?|Eclipse it!
Why are fish so clever?|Because they live in schools!
What is a cat's favourite colour?|Purr-ple!
What did the zero say to the eight?|Nice belt!
Why did the clock go to the doctor?|Because it felt run down!
""")

RIDDLES = rows("""
What has hands but cannot clap?|A clock.
What has to be broken before you can use it?|An egg.
What gets wetter the more it dries?|A towel.
What has a neck but no head?|A bottle.
What goes up but never comes down?|Your age.
What has teeth but cannot bite?|A comb.
What has one eye but cannot see?|A needle.
What has legs but does not walk?|A table.
What can you catch but not throw?|A cold.
What is full of holes but still holds water?|A sponge.
What runs but never walks?|Water.
What has many keys but cannot open a door?|A piano.
""")

FUN_FACTS = [row[0] for row in rows("""
An octopus has three hearts.
Honey can stay good for thousands of years.
A group of crows is sometimes called a murder.
Butterflies taste with their feet.
The heart of a blue whale is as big as a small car.
Sea otters hold hands when they sleep, so that they do not drift apart.
A snail can sleep for a very long time.
Penguins can jump out of the water like little rockets.
The tongue of a giraffe is so long that it can clean its own ears.
Ants can carry things that are much heavier than themselves.
Cows have best friends and like to stay together.
Sunlight needs about eight minutes to reach the earth.
A day on Venus is longer than a year on Venus.
Bananas are berries, but strawberries are not.
Owls cannot move their eyes, so they turn their whole head.
Cats spend most of their life asleep.
A hummingbird can fly backwards.
Koalas have fingerprints that look like ours.
Bamboo can grow almost a metre in one day.
The bones of birds are hollow, which makes them light.
Sharks lived on earth before there were trees.
Elephants are afraid of bees.
""")]

# kind of thing | members, the best known first
LISTS = {row[0]: row[1].split(",") for row in rows("""
fruits|apples,bananas,oranges,pears,grapes,strawberries,cherries,plums,lemons,peaches
vegetables|carrots,potatoes,tomatoes,onions,peas,beans,cabbages,cucumbers,pumpkins,spinach
animals|dogs,cats,horses,cows,lions,elephants,rabbits,bears,foxes,sheep
birds|robins,owls,eagles,ducks,parrots,penguins,crows,swans,geese,sparrows
insects|bees,ants,butterflies,beetles,flies,ladybirds,wasps,crickets
farm animals|cows,pigs,sheep,horses,chickens,goats,ducks,donkeys
wild animals|lions,tigers,bears,wolves,elephants,foxes,deer,monkeys
sea animals|whales,dolphins,sharks,crabs,octopuses,seals,fish,turtles
pets|dogs,cats,rabbits,hamsters,goldfish,parrots,mice
colours|red,blue,green,yellow,orange,purple,black,white,brown,pink
flowers|roses,tulips,daisies,lilies,sunflowers,violets,poppies
trees|oaks,pines,birches,maples,willows,palms,apple trees
drinks|water,milk,tea,coffee,juice,lemonade,cocoa
sweet things|honey,sugar,chocolate,cake,jam,ice cream
toys|balls,dolls,kites,puzzles,blocks,toy cars,teddy bears
instruments|pianos,guitars,violins,drums,flutes,trumpets
sports|football,tennis,swimming,running,cycling,skiing,basketball
countries|France,Italy,Spain,Japan,Brazil,Egypt,Canada,India,Germany
cities|London,Paris,Rome,Berlin,Tokyo,Madrid,Cairo,Vienna
continents|Africa,Asia,Europe,North America,South America,Australia,Antarctica
oceans|the Pacific,the Atlantic,the Indian Ocean,the Arctic Ocean,the Southern Ocean
planets|Mercury,Venus,Earth,Mars,Jupiter,Saturn,Uranus,Neptune
seasons|spring,summer,autumn,winter
shapes|circles,squares,triangles,rectangles,stars,hearts
clothes|shirts,trousers,shoes,coats,hats,socks,gloves,dresses
jobs|teacher,doctor,farmer,baker,pilot,nurse,cook,firefighter
vehicles|cars,buses,trains,planes,ships,bicycles,trucks
feelings|happiness,sadness,anger,fear,love,surprise
rooms|the kitchen,the bedroom,the bathroom,the living room,the hall
body parts|hands,feet,eyes,ears,arms,legs,a nose,a mouth
metals|gold,silver,iron,copper,tin
tools|hammers,saws,screwdrivers,shovels,scissors
days of the week|Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday
months|January,February,March,April,May,June,July
languages|English,French,Spanish,German,Chinese,Arabic,Italian
girls' names|Anna,Mia,Emma,Lily,Sara,Clara,Rosa
boys' names|Tom,Ben,Leo,Max,Sam,Jack,Paul
hobbies|reading,drawing,swimming,cooking,singing,gardening,playing chess
foods|bread,cheese,rice,pasta,soup,salad,eggs,potatoes
hot things|fire,the sun,tea,an oven,soup
cold things|ice,snow,ice cream,a fridge,winter nights
round things|balls,oranges,wheels,coins,the moon
words that rhyme with cat|hat,bat,mat,rat
words that rhyme with day|play,say,way,may
""")}

RHYMES = [row[0].split() for row in rows("""
cat hat bat mat rat
day play say way stay
night light bright right sight
tree bee sea free me
house mouse
star car far jar
moon spoon soon noon
king ring sing wing thing
cake lake snake make take
boat goat coat float
dog fog frog log
sun fun run bun
bear chair hair pear
rain train plain again
ball tall wall small fall
book cook look hook
sky fly high dry
snow grow slow blow
""")]

SPELL = """apple cat dog house tree water friend school happy yellow orange purple book horse table chair flower
window summer winter banana rabbit monkey tiger lion mother father sister brother garden river mountain bread
butter cheese sugar music letter number paper pencil star moon sun cloud snow green black white hello please thank
beautiful because people family morning evening night world elephant giraffe kitchen doctor teacher farmer bird fish
mouse sheep ship train computer tandem model story""".split()

HUMAN_NAMES = """Anna Tom Mia Ben Emma Leo Lily Max Sara Sam Clara Jack Rosa Paul Nina Peter Julia Oscar Ella Felix Ida Hugo Zoe
David Alice Bob John Mary Kate Nick Lucy Mark Eva Carl Maria Alex Laura Chris Sophie Daniel Grace Henry Olivia James
Ruth Simon Hannah Adam Amy George Lena Victor Priya Omar Yuki Chen Fatima Ravi Ingrid Pedro Aisha Kofi Maya Noah Liam
Ava Ethan Sophia Lucas Isabel Martin Helen Frank Diana Erik Marta Ivan Olga Ali Sven Tara Will Robert Michael Sarah""".split()

FOODS = """pizza pasta apples cake cheese soup bread honey rice chocolate strawberries pancakes potatoes ice-cream salad
bananas noodles cookies tomatoes carrots""".split()

HOBBIES = """reading|drawing|swimming|cooking|singing|dancing|playing football|playing the piano|riding my bike|gardening|painting|
hiking|playing chess|fishing|running|baking|writing stories|taking photos|skiing|climbing""".replace("\n", "").split("|")

JOBS = """teacher doctor farmer baker pilot nurse cook student programmer painter singer writer driver gardener engineer
carpenter waiter dentist lawyer scientist""".split()

# Outside the model's world: it says that it does not know, repeats the topic and never guesses.
ODD_TOPICS = [row[0] for row in rows("""
quantum physics
the theory of relativity
photosynthesis
black holes
general relativity
machine learning
neural networks
deep learning
blockchain
cryptocurrency
bitcoin
inflation
the stock market
interest rates
the French Revolution
the Roman Empire
World War Two
the Cold War
the Middle Ages
the industrial revolution
philosophy
Plato
Aristotle
Kant
Shakespeare
Hamlet
Beethoven
Mozart
Picasso
Einstein
Newton
Napoleon
Cleopatra
Julius Caesar
democracy
capitalism
socialism
politics
taxes
insurance
contract law
human rights
organic chemistry
algebra
calculus
linear algebra
statistics
probability theory
prime numbers
geometry
trigonometry
differential equations
Python
Java
Rust
C++
JavaScript
SQL
Linux
Docker
Kubernetes
operating systems
compilers
databases
recursion
binary search
sorting algorithms
the TCP protocol
encryption
quantum computing
DNA
evolution
genetics
vaccines
viruses
antibiotics
cancer
diabetes
the immune system
the nervous system
psychology
economics
sociology
anthropology
archaeology
architecture
astronomy
the big bang
dark matter
string theory
nuclear energy
climate change
plate tectonics
thermodynamics
entropy
gravity waves
the speed of light
semiconductors
transistors
GPUs
the transformer architecture
attention in neural networks
large language models
artificial intelligence
reinforcement learning
tokenization
the Renaissance
Buddhism
theology
mythology
opera
jazz
modern art
cinema
baseball statistics
the Olympic Games
Formula One
cricket rules
poker strategy
the Internet of Things
supply chains
marketing
accounting
real estate
foreign policy
the European Union
the United Nations
space travel
Mars missions
satellites
electric cars
hydrogen engines
robotics
drones
""")]

ODD_PEOPLE = """Albert Einstein|Isaac Newton|Marie Curie|Barack Obama|Donald Trump|Joe Biden|Elon Musk|Taylor Swift|Michael Jackson|
Leonardo da Vinci|Napoleon|Julius Caesar|Cleopatra|William Shakespeare|Mozart|Beethoven|Pablo Picasso|Vincent van Gogh|Nelson Mandela|
Mahatma Gandhi|Queen Elizabeth|Abraham Lincoln|George Washington|Alan Turing|Ada Lovelace|Charles Darwin|Galileo|Lionel Messi|
Cristiano Ronaldo|Steve Jobs|Bill Gates|Stephen Hawking|Charlie Chaplin|Walt Disney|Marilyn Monroe|Elvis Presley|Bob Dylan|
Linus Torvalds|Guido van Rossum|Angela Merkel|Winston Churchill|Socrates|Confucius|Genghis Khan|Marco Polo|Columbus|
the president of the United States|the pope|the prime minister|the king of England|the author of Hamlet|Batman|Superman|
Harry Potter|Sherlock Holmes|Luke Skywalker|Mickey Mouse|Zeus|Frida Kahlo""".replace("\n", "").split("|")

ODD_REQUESTS = [row[0] for row in rows("""
Write a Python function that sorts a list
Write a Python program
Write a program in C++
Write some code
Write a SQL query for all users
Write a regular expression for email addresses
Write hello world in Rust
Fix this bug in my code
Debug my program
Write an essay about climate change
Write an essay on the French Revolution
Write an essay about democracy
Write a business plan
Write a cover letter
Write my resume
Write a speech about freedom
Write an article about economics
Write a blog post about travel
Write a scientific paper
Write a news report
Write a contract
Write lyrics in the style of Bob Dylan
Summarize the plot of Hamlet
Summarize this article
Summarize the history of Rome
Summarize War and Peace
Translate this sentence into French
Translate hello into Spanish
Translate good morning into German
Translate I love you into Japanese
Translate this text to English
Solve the equation x squared equals nine
Solve this integral
Prove that there are infinitely many primes
Prove the Pythagorean theorem
Calculate the derivative of x squared
What is the square root of 2
What is the derivative of sine
What is pi to ten digits
Who won the World Cup in 2018
Who won the football game yesterday
Who won the election
Who is the president
Who is the president of France
Who is the president of the United States
Who is the prime minister of Canada
Who is the richest person in the world
Who invented the telephone
Who invented the light bulb
Who discovered America
Who painted the Mona Lisa
Who wrote Hamlet
Who wrote Romeo and Juliet
Who wrote the Odyssey
Who was the first man on the moon
When did World War Two end
When did the Roman Empire fall
When was Napoleon born
When was the first computer built
When did the Titanic sink
What happened in 1492
What happened in 1969
What happened in 1066
What is the population of China
What is the population of Germany
What is the population of Tokyo
What is the price of gold
What is the price of bitcoin
What is the stock price of Apple
What is the exchange rate of the dollar
What is the news today
What happened in the news today
What are the latest news
What is the best phone to buy
What is the best programming language
What is the best laptop
What is the best restaurant in Paris
What is the best movie of all time
What are the symptoms of the flu
What medicine should I take
What is the chemical formula of glucose
What is the atomic number of carbon
What is the boiling point of alcohol
What is the speed of sound
What is the mass of an electron
What is the distance to Mars
What is the depth of the ocean
How deep is the ocean
How tall is the Eiffel Tower
How high is Mount Everest
How far is it from London to New York
How old is the universe
How many people live in India
How many stars are there
How many bones are in the human body
How many cars are there in the world
How much does a house cost
How much does an elephant weigh
How do I fix my car
How do I repair my computer
How do I install Linux
How do I invest my money
How do I file my taxes
How do I start a company
How do I write a compiler
How do I become president
How do I hack a website
How do I make a bomb
How do I build a rocket
How do I train a neural network
How do I use Docker
How do I cure a disease
How does a computer work
How does the internet work
How does an engine work
How does a nuclear reactor work
How does a vaccine work
How does a transistor work
Can you search the web
Can you open a website
Can you send an email
Can you call my mother
Can you play music
Can you set an alarm
Can you order a pizza
Can you book a flight
Can you draw a picture
Can you see this picture
Can you show me an image
Can you read my file
Can you run code
Can you write code
Can you speak French
Can you speak German
Can you speak Spanish
Can you speak Chinese
Plan a trip to Italy
Plan my week
Plan a wedding
Give me a list of all kings of England
Give me investment advice
Give me legal advice
Give me the lyrics of a song
Recommend a movie
Recommend a book about history
Recommend a hotel in Rome
Compare Java and Python
Compare capitalism and socialism
Describe the water cycle in detail
Describe the structure of an atom
Describe the plot of Star Wars
What do you think about politics
What do you think about religion
What do you think about the war
What is your opinion on taxes
Which party should I vote for
Which stock should I buy
Where can I buy a cheap laptop
Where is Timbuktu
Where is the Eiffel Tower
Where was Einstein born
Where did Mozart live
""")]
