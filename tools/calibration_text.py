"""The words behind tools/make_calibration.py. Written for Vesta (MIT, like the rest), except PUBLIC_DOMAIN, whose
entries name their source."""

SYSTEMS = ["You are a helpful assistant.", "You are a careful assistant. Say so when you are not sure.", "Answer in one or two sentences.",
           "You help with programming. Prefer short code.", "You are a patient teacher.", "Sei un assistente gentile.",
           "You are an assistant on a small computer without internet.", "Use plain words and no decoration."]

NAMES = ["Ada", "Amir", "Bianca", "Carlo", "Chen", "Clara", "Dario", "Elif", "Emil", "Fatima", "Giulia", "Hugo", "Ines", "Ivan",
         "Jana", "Kofi", "Lena", "Luca", "Mara", "Mina", "Nadia", "Noah", "Olga", "Omar", "Paola", "Pedro", "Rosa", "Samir", "Tessa",
         "Tom", "Uma", "Viktor", "Yuki", "Zara"]

THINGS = ["apple", "basket", "bicycle", "blanket", "bottle", "bucket", "button", "candle", "carpet", "clock", "coin", "compass",
          "cup", "drum", "envelope", "feather", "flag", "flute", "fork", "glove", "hammer", "jacket", "kettle", "ladder", "lamp",
          "lemon", "letter", "map", "marble", "mirror", "needle", "onion", "paddle", "pencil", "pillow", "rope", "saddle", "scarf",
          "shovel", "spoon", "stamp", "ticket", "umbrella", "violin", "wheel", "whistle"]

# name, capital, continent, currency, language, known for
COUNTRIES = [
    ("Italy", "Rome", "Europe", "euro", "Italian", "old cities, mountains and pasta"),
    ("Norway", "Oslo", "Europe", "krone", "Norwegian", "fjords, fish and long winters"),
    ("Japan", "Tokyo", "Asia", "yen", "Japanese", "fast trains, temples and electronics"),
    ("Kenya", "Nairobi", "Africa", "shilling", "Swahili", "savannas, runners and tea"),
    ("Peru", "Lima", "South America", "sol", "Spanish", "the Andes and the ruins of Machu Picchu"),
    ("Canada", "Ottawa", "North America", "Canadian dollar", "English", "forests, lakes and maple syrup"),
    ("Egypt", "Cairo", "Africa", "Egyptian pound", "Arabic", "the Nile and the pyramids"),
    ("India", "New Delhi", "Asia", "rupee", "Hindi", "many languages, spices and monsoon rains"),
    ("Poland", "Warsaw", "Europe", "zloty", "Polish", "old towns, lakes and amber"),
    ("Brazil", "Brasilia", "South America", "real", "Portuguese", "the Amazon, football and coffee"),
    ("Vietnam", "Hanoi", "Asia", "dong", "Vietnamese", "rice, rivers and a long coast"),
    ("Greece", "Athens", "Europe", "euro", "Greek", "islands, temples and olives"),
    ("Mexico", "Mexico City", "North America", "peso", "Spanish", "maize, volcanoes and murals"),
    ("Ghana", "Accra", "Africa", "cedi", "English", "cocoa, gold and music"),
    ("Turkey", "Ankara", "Asia and Europe", "lira", "Turkish", "bazaars, tea and two seas"),
    ("Finland", "Helsinki", "Europe", "euro", "Finnish", "saunas and a great many lakes"),
    ("Chile", "Santiago", "South America", "peso", "Spanish", "copper, wine and a desert"),
    ("Nepal", "Kathmandu", "Asia", "rupee", "Nepali", "the highest mountains on earth"),
    ("Morocco", "Rabat", "Africa", "dirham", "Arabic", "markets, mountains and mint tea"),
    ("Ireland", "Dublin", "Europe", "euro", "English", "green hills, rain and stories"),
    ("Iceland", "Reykjavik", "Europe", "krona", "Icelandic", "volcanoes, hot springs and sagas"),
    ("Cuba", "Havana", "North America", "peso", "Spanish", "sugar, old cars and music"),
    ("Thailand", "Bangkok", "Asia", "baht", "Thai", "temples, beaches and street food"),
    ("Portugal", "Lisbon", "Europe", "euro", "Portuguese", "sailors, cork and fado"),
    ("Ethiopia", "Addis Ababa", "Africa", "birr", "Amharic", "coffee and highlands"),
    ("Mongolia", "Ulaanbaatar", "Asia", "tugrik", "Mongolian", "horses, tents and wide grassland"),
    ("Hungary", "Budapest", "Europe", "forint", "Hungarian", "baths, paprika and the Danube"),
    ("Jordan", "Amman", "Asia", "dinar", "Arabic", "the city of Petra, cut into rock"),
    ("Uruguay", "Montevideo", "South America", "peso", "Spanish", "cattle, beaches and quiet towns"),
    ("Sweden", "Stockholm", "Europe", "krona", "Swedish", "forests, islands and design"),
]

# word, kind, meaning, example
DEFINITIONS = [
    ("harbour", "noun", "a sheltered place where ships can stay", "The boats came back to the harbour before the storm."),
    ("borrow", "verb", "to take something for a while and give it back later", "May I borrow your pencil until noon?"),
    ("fragile", "adjective", "easy to break", "The old glass is fragile, so hold it with both hands."),
    ("orbit", "noun", "the path of a body around a larger one", "The moon needs about a month for one orbit."),
    ("whisper", "verb", "to speak very softly, without voice", "They whisper because the baby is asleep."),
    ("patient", "adjective", "able to wait without getting angry", "A patient teacher explains it a third time."),
    ("bridge", "noun", "something built to cross a river, a road or a gap", "Two hundred cars an hour cross the bridge."),
    ("measure", "verb", "to find out how large or how much something is", "Measure the table before you buy the cloth."),
    ("transparent", "adjective", "letting light through so that one can see what is behind", "Clean water is transparent."),
    ("drought", "noun", "a long time without rain", "After the drought the wells were almost empty."),
    ("repair", "verb", "to make something work again", "She can repair a clock with a pin and some patience."),
    ("narrow", "adjective", "not wide", "The narrow street has no room for two carts."),
    ("witness", "noun", "a person who saw something happen", "The witness remembers a blue van."),
    ("gather", "verb", "to bring or come together", "We gather wood before it gets dark."),
    ("stubborn", "adjective", "not willing to change one's mind", "The stubborn donkey stood still on the path."),
    ("recipe", "noun", "directions for cooking a dish", "Grandmother's recipe needs a whole day."),
    ("predict", "verb", "to say what will happen", "Nobody can predict the weather of next year."),
    ("hollow", "adjective", "empty inside", "An owl lives in the hollow tree."),
    ("shelter", "noun", "a place that protects from weather or danger", "The cave was a good shelter for the night."),
    ("polish", "verb", "to rub until it shines", "He polishes his shoes every Sunday."),
    ("rare", "adjective", "found or happening seldom", "This stamp is rare because few were printed."),
    ("ladder", "noun", "two long bars with steps between them, for climbing", "Hold the ladder while I pick the cherries."),
    ("compare", "verb", "to look at two things to see how they differ", "Compare the prices before you choose."),
    ("steep", "adjective", "rising or falling sharply", "The last part of the climb is steep."),
]

# topic, text
EXPLANATIONS = [
    ("how rain is made", "Rain begins with water that the sun lifts from seas, lakes and leaves as vapour. The warm, moist air rises, and since "
     "air gets colder with height, the vapour turns into tiny drops around grains of dust: a cloud. The drops meet and grow, and when "
     "they are too heavy for the rising air to hold, they fall."),
    ("a computer's memory", "A computer's memory is a long row of numbered boxes that each hold a small number. A program reads and writes "
     "boxes by their number, which is called an address. Memory is fast but forgets everything when the power goes away, so what has "
     "to last is written to a disk."),
    ("vaccination", "A vaccine shows the body a harmless part of a germ. The body learns to recognise it and keeps cells that remember. When "
     "the real germ arrives later, these cells answer within hours instead of days, and most people do not even notice the attack."),
    ("why the sky is blue", "Sunlight is a mixture of all colours. On its way through the air, short waves are scattered in every direction "
     "much more strongly than long ones, and blue is short while red is long. So blue light reaches our eyes from all sides of the sky. "
     "In the evening the light passes through more air, the blue is lost on the way, and what remains is red."),
    ("the printing press", "The printing press made copies of a page with movable letters of metal. A page had to be set once and could then be "
     "printed hundreds of times. Books became cheap, more people learned to read, and ideas travelled faster than the people who had them."),
    ("binary search", "Binary search finds a value in a sorted list by looking at the middle. If the middle is too large, the value can only be "
     "in the first half; if it is too small, only in the second. Every step halves what is left, so a million entries need about twenty "
     "steps. It only works when the list is sorted, and the usual mistake is an error by one at the borders."),
    ("bread", "Bread is flour and water, left to rise and baked. Yeast eats the sugar in the dough and gives off gas, and the long strings of "
     "gluten hold the gas in bubbles. Salt slows the yeast and gives taste. A hot oven sets the bubbles and makes the crust brown."),
    ("compound interest", "Compound interest is interest on interest. If a hundred coins earn five percent, there are a hundred and five after a "
     "year; in the second year the five earn something too. After fourteen years the sum has nearly doubled. Debt grows in the same way."),
    ("the seasons", "The seasons come from the tilt of the earth's axis. For half of the year the north leans towards the sun: the days are long, "
     "the light falls steeply, and it is summer there. Half a year later it leans away. The distance from the sun plays almost no part."),
    ("version control", "Version control keeps every state of a set of files, together with who changed what and why. One can go back to any "
     "state, compare two of them, and work on several ideas in parallel branches that are merged later. A good message says why a change was "
     "made; what was changed can be seen anyway."),
    ("how a bicycle stays up", "A moving bicycle stays up because its rider steers into every fall. When it leans to the left, the front wheel "
     "turns a little to the left and brings the wheels back under the weight. The faster it goes, the smaller these corrections are. Standing "
     "still is the hard part."),
    ("fermentation", "Fermentation is the work of small organisms that live on sugar without air. Yeast makes alcohol and gas, other bacteria make "
     "acid. People use them for bread, wine, yoghurt, cheese and pickles. The acid and the alcohol also keep other germs away, so the food "
     "lasts longer."),
    ("a queue in computing", "A queue is a line in which the first one in is the first one out. Programs use queues between parts that work at "
     "different speeds: one part puts work in at the end, another takes it from the front. If the queue keeps growing, the second part is too "
     "slow, and a limit must say what happens then."),
    ("the moon", "The moon is a ball of rock about a quarter as wide as the earth. It always shows us the same side, because it turns once around "
     "itself in the time of one orbit. Its light is reflected sunlight, and its pull raises the tides."),
    ("map projections", "A map projection draws the round earth on flat paper. Something must give: either areas, or angles, or distances are wrong "
     "somewhere. Sailors wanted right angles and accepted that Greenland looks as large as Africa. Whoever compares countries should take a map "
     "that keeps areas."),
    ("quantization of a neural network", "Quantization stores the weights of a neural network in fewer bits. Groups of weights share a scale, and each "
     "weight becomes a small whole number. The rounding error matters most in columns that meet large inputs, so one measures the inputs first and "
     "spends the precision there. Done well, a network of a quarter of the size answers almost the same."),
]

# question, reasoning, answer
CODE_QUESTIONS = [
    ("Write a Python function that counts vowels.", "Loop over the characters and test membership.",
     "```python\ndef count_vowels(text):\n    return sum(1 for c in text.lower() if c in \"aeiou\")\n```"),
    ("How do I read a file line by line in Python?", "Use a with block.",
     "```python\nwith open(\"data.txt\", encoding=\"utf-8\") as f:\n    for line in f:\n        print(line.rstrip(\"\\n\"))\n```"),
    ("Write a C function that returns the larger of two integers.", "A conditional expression.",
     "```c\nint max_int(int a, int b) {\n    return a > b ? a : b;\n}\n```"),
    ("Find the ten largest files under this folder in the shell.", "du, sort and head.",
     "```sh\nfind . -type f -printf '%s %p\\n' | sort -rn | head -n 10\n```"),
    ("Show me a binary search in C++.", "Half-open interval, so that the borders are simple.",
     "```cpp\nsize_t lower_bound(const std::vector<int>& v, int x) {\n    size_t first = 0, last = v.size();\n    while (first < last) {\n"
     "        const size_t middle = first + (last - first) / 2;\n        if (v[middle] < x) first = middle + 1;\n        else last = middle;\n    }\n"
     "    return first;\n}\n```"),
    ("What is wrong here?\n```python\ndef add(item, items=[]):\n    items.append(item)\n    return items\n```",
     "The default list is made once.",
     "The default list is created once and shared by all calls, so items pile up. Use `None` and make a new list inside:\n"
     "```python\ndef add(item, items=None):\n    items = [] if items is None else items\n    items.append(item)\n    return items\n```"),
    ("Write a SQL query for the number of orders per customer, largest first.", "Group, count, order.",
     "```sql\nSELECT customer_id, COUNT(*) AS n_order\nFROM orders\nGROUP BY customer_id\nORDER BY n_order DESC;\n```"),
    ("How do I undo my last git commit but keep the changes?", "A soft reset.",
     "```sh\ngit reset --soft HEAD~1\n```\nThe changes stay staged."),
    ("Write a JavaScript function that waits some milliseconds.", "A promise around setTimeout.",
     "```js\nconst wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));\n```"),
    ("Reverse a string in Python.", "A slice with step -1.", "```python\ntext[::-1]\n```"),
    ("Write a shell loop that renames all .jpeg files to .jpg.", "Parameter expansion removes the suffix.",
     "```sh\nfor f in *.jpeg; do\n    mv -- \"$f\" \"${f%.jpeg}.jpg\"\ndone\n```"),
    ("Write a Python class for a bank account.", "Deposit, withdraw, refuse overdrafts.",
     "```python\nclass Account:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n        self.balance = balance\n\n"
     "    def deposit(self, amount):\n        if amount <= 0:\n            raise ValueError(\"amount must be positive\")\n        self.balance += amount\n\n"
     "    def withdraw(self, amount):\n        if amount > self.balance:\n            raise ValueError(\"not enough money\")\n        self.balance -= amount\n```"),
    ("Compute Fibonacci numbers without recursion.", "Two variables are enough.",
     "```python\ndef fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a\n```"),
    ("What does `chmod 644 file` do?", "Owner read and write, others read.",
     "The owner may read and write the file; the group and everybody else may only read it."),
    ("Write a regular expression for a date like 2024-05-31.", "Four, two, two digits.",
     "```\n\\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])\n```\nIt does not know that February is shorter."),
    ("Write a Rust function that sums a slice.", "An iterator does it.",
     "```rust\nfn total(values: &[f64]) -> f64 {\n    values.iter().sum()\n}\n```"),
    ("How do I see which process uses port 8080?", "ss or lsof.", "```sh\nss -ltnp 'sport = :8080'\n```"),
    ("Explain this line: `x = [f(y) for y in z if y > 0]`", "A list comprehension with a condition.",
     "It goes over z, keeps the values greater than zero, applies f to each, and puts the results into a new list x."),
    ("Write an HTML page with a heading and a list.", "A minimal document.",
     "```html\n<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>List</title></head>\n<body>\n<h1>Shopping</h1>\n<ul>\n"
     "<li>Bread</li>\n<li>Milk</li>\n</ul>\n</body>\n</html>\n```"),
    ("Remove duplicates from a Python list and keep the order.", "A dict keeps insertion order.", "```python\nunique = list(dict.fromkeys(items))\n```"),
    ("Write a unit test for a function `is_even`.", "Even, odd, zero, negative.",
     "```python\ndef test_is_even():\n    assert is_even(4)\n    assert not is_even(7)\n    assert is_even(0)\n    assert is_even(-2)\n```"),
    ("Print the second column of a file in the shell.", "awk splits at blanks.", "```sh\nawk '{ print $2 }' file.txt\n```"),
]

# question, reasoning, answer
ITALIAN = [
    ("Qual è la montagna più alta d'Europa occidentale?", "Penso al Monte Bianco.", "È il Monte Bianco, alto circa 4800 metri."),
    ("Che cosa mangiano le mucche?", "Erba e fieno.", "Le mucche mangiano erba, fieno e altri foraggi."),
    ("Come si dice \"good morning\" in italiano?", "È un saluto del mattino.", "Si dice \"buongiorno\"."),
    ("Quanti giorni ha una settimana?", "Li conto: da lunedì a domenica.", "Una settimana ha sette giorni."),
    ("Scrivi una frase con la parola \"finestra\".", "Una frase semplice.", "Apro la finestra perché entri un po' d'aria fresca."),
    ("Perché il mare è salato?", "I fiumi portano sali disciolti dalle rocce.",
     "I fiumi sciolgono un po' di sale dalle rocce e lo portano al mare. L'acqua evapora, il sale resta."),
    ("Dammi un consiglio per dormire meglio.", "Orari regolari, poca luce.", "Vai a letto sempre alla stessa ora e spegni gli schermi un'ora prima."),
    ("Metti al plurale: il libro, la mela, lo zaino.", "Cambio articolo e finale.", "i libri, le mele, gli zaini"),
    ("Traduci in inglese: \"Il gatto dorme sul tetto.\"", "Il tempo è il presente.", "The cat sleeps on the roof."),
    ("Che ore sono se mancano dieci minuti alle tre?", "Tre meno dieci.", "Sono le due e cinquanta."),
    ("Spiega che cos'è un algoritmo.", "Una ricetta per un calcolatore.",
     "Un algoritmo è un elenco di passi precisi che risolvono un problema, come una ricetta che anche una macchina può seguire."),
    ("Chi ha dipinto la Gioconda?", "Un pittore del Rinascimento.", "La Gioconda è di Leonardo da Vinci."),
    ("Scrivi un breve messaggio di auguri di compleanno.", "Breve e gentile.", "Tanti auguri! Che sia un anno pieno di cose belle."),
    ("Quanto fa dodici per dodici?", "12 per 12: 120 più 24.", "Dodici per dodici fa 144."),
]

# title, text; {A} and {B} are names
STORIES = [
    ("the lamp in the attic", "When the rain came through the roof for the third time, {A} climbed into the attic with a bucket and a bad temper. Behind "
     "the chimney stood a lamp that nobody had lit for forty years. {B}, who held the ladder, said that it would never burn again. But {A} cut the "
     "wick, filled in a little oil, and waited. The flame was small and blue at first, and then it was yellow, and the whole attic with its trunks and "
     "cobwebs stood there as if somebody had just left it.\n\nThey did not find a treasure. They found the letters of an aunt who had gone to sea, and they "
     "read until the oil was gone. In the morning {B} mended the roof, and {A} wrote an answer to the last letter, though it was forty years late, and "
     "put it into the trunk where it belonged."),
    ("a race on the river", "Every spring the two villages raced on the river, and every spring the upper village won, because it had the better boat. This year "
     "{A} built a new one. It was narrow and light and, as {B} said, it would sink if somebody sneezed. They trained at night, when nobody could laugh. On "
     "the day of the race they lay behind until the bend, where the current is strong near the rocks. The others kept to the middle. {B} looked at {A}, {A} "
     "nodded, and they steered so close to the stones that the oars touched them.\n\nThey won by the length of a hand. \"Luck,\" said the upper village. "
     "\"Of course,\" said {A}. \"We practised it for a month.\""),
    ("the clockmaker's apprentice", "{A} was a clockmaker who did not like to talk, and {B} was an apprentice who liked nothing else. For the first week there were "
     "questions all day: why is this wheel larger, why does that spring break, why do we close at six. {A} answered with a nod or with a shake of the head. On "
     "Monday of the second week {A} put a broken watch on the table and went out. There was no word and no plan. {B} took it apart, lost a screw, found it "
     "again in a shoe, and put everything together. The watch ran, but it ran backwards.\n\nWhen {A} came home, {B} was quiet for the first time. {A} "
     "looked at the watch for a long while. \"Now,\" said the clockmaker, \"you have a question that is worth an answer.\""),
    ("the last train", "The last train had left, and the waiting room was locked, so {A} and {B} shared the only bench. They had never met. {A} had an apple, {B} had a "
     "knife, and that was the beginning of the conversation. They spoke about trains first, and about being late, and then about the people who were waiting at "
     "the other end. Toward two o'clock it grew cold. {B} knew a song with thirty verses. By the twentieth they had stopped shivering.\n\nThe first train came at "
     "five. It went in the wrong direction for {A} and in the right one for {B}. \"Come along,\" said {B}. \"You can be late from there, too.\""),
    ("the garden wall", "Between the two gardens stood a wall, and on the wall sat a cat that belonged to neither. {A} called it Captain. {B} called it Thief. It came for "
     "milk on one side and for fish on the other, and it carried things across: a glove, a ribbon, half a newspaper. One morning it carried a seed potato from {B}'s cellar "
     "to {A}'s bed of roses, and in summer there was a potato plant between the roses that nobody could explain.\n\nIn autumn they dug it up together. There were "
     "eleven potatoes, an odd number, so they gave the last one to the cat, who did not want it."),
    ("a message in the library", "In the margin of a book about bees, {A} found a sentence in pencil: \"If you have come this far, look on page 90.\" On page 90 it said: \"Good. Now the "
     "green atlas, the map of rivers.\" {A} had an exam on the next day and should have stopped. In the atlas there was a third note, and then a fourth, until the trail "
     "ended at the desk of {B}, the librarian, who did not look up. \"It took you two hours,\" said {B}. \"The record is forty minutes. But that reader did not read the "
     "books on the way, and you did.\"\n\nSince then {A} comes every Thursday, and in the book about bees there is a new sentence."),
]

# What to ask of nobody's permission: speeches of statesmen dead for more than 100 years and acts of government.
PUBLIC_DOMAIN = [
    ("Abraham Lincoln, Gettysburg Address, 1863 (Bliss copy)",
     "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and dedicated to the proposition that all men are "
     "created equal.\n\nNow we are engaged in a great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long endure. We are met on a "
     "great battle-field of that war. We have come to dedicate a portion of that field, as a final resting place for those who here gave their lives that that nation might "
     "live. It is altogether fitting and proper that we should do this.\n\nBut, in a larger sense, we can not dedicate -- we can not consecrate -- we can not hallow -- this "
     "ground. The brave men, living and dead, who struggled here, have consecrated it, far above our poor power to add or detract. The world will little note, nor long "
     "remember what we say here, but it can never forget what they did here. It is for us the living, rather, to be dedicated here to the unfinished work which they who "
     "fought here have thus far so nobly advanced. It is rather for us to be here dedicated to the great task remaining before us -- that from these honored dead we take "
     "increased devotion to that cause for which they gave the last full measure of devotion -- that we here highly resolve that these dead shall not have died in vain -- "
     "that this nation, under God, shall have a new birth of freedom -- and that government of the people, by the people, for the people, shall not perish from the earth."),
    ("Constitution of the United States, preamble and the first amendment",
     "We the People of the United States, in Order to form a more perfect Union, establish Justice, insure domestic Tranquility, provide for the common defence, promote the "
     "general Welfare, and secure the Blessings of Liberty to ourselves and our Posterity, do ordain and establish this Constitution for the United States of America.\n\n"
     "Congress shall make no law respecting an establishment of religion, or prohibiting the free exercise thereof; or abridging the freedom of speech, or of the press; or "
     "the right of the people peaceably to assemble, and to petition the Government for a redress of grievances."),
]
